"""A signed-in browser, without the browser."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from allauth.account.authentication import AUTHENTICATION_METHODS_SESSION_KEY
from django.test import Client

from backendai.domain.accounts.models import User


def prove(client: Client) -> None:
    """Let this login have proved by password just now who it is, as every real one has."""
    session = client.session
    session[AUTHENTICATION_METHODS_SESSION_KEY] = [{"method": "password", "at": time.time()}]
    session[f"{AUTHENTICATION_METHODS_SESSION_KEY}_user"] = session["_auth_user_id"]
    session.save()


@pytest.fixture
def browse() -> Callable[[User], Client]:
    """Return a client that has signed in as this person."""

    def sign_in(user: User) -> Client:
        client = Client()
        client.force_login(user)
        prove(client)
        return client

    return sign_in


HTMX = {"HTTP_HX_REQUEST": "true"}
