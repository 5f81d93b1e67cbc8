"""A signed-in browser, without the browser."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from backendai.accounts.models import User


@pytest.fixture
def browse() -> Callable[[User], Client]:
    """Return a client that has signed in as this person."""

    def sign_in(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return sign_in


HTMX = {"HTTP_HX_REQUEST": "true"}
