"""Is whoever was let in once still signed in? Asked again and again by whatever stays open longer than a request."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from importlib import import_module

from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest

from backendai.accounts.models import AccessToken, User


@dataclass(frozen=True, slots=True)
class Standing:
    """By what somebody was let in: the key of a login, or the digest of a bearer token."""

    login: str = ""
    token: str = ""


def user_by(standing: Standing, now: datetime) -> User | None:
    """Return who that is, or None: signed out, revoked, expired, disabled, another password."""
    if standing.token:
        token = AccessToken.objects.select_related("user").filter(digest=standing.token).first()
        return token.user if token and token.is_valid(now) else None
    if not standing.login:
        return None
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(standing.login)
    user = get_user(request)
    return user if isinstance(user, User) and user.is_active else None
