"""Who is asking: a bearer token here, the login session by the framework's own class (with CSRF)."""

from __future__ import annotations

from typing import cast

from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from backendai.accounts.models import User
from backendai.accounts.services import user_of_token
from backendai.core.errors import NotFound


def asker(request: Request) -> User:
    """Return who asks, in a view that lets in signed-in people only."""
    return cast(User, request.user)


def steerer(request: Request) -> User:
    """Return the superadmin who asks; for anybody else there is nothing here."""
    if not asker(request).is_superadmin:
        raise NotFound("There is nothing here that you may see.")
    return asker(request)


class BearerAuthentication(BaseAuthentication):
    """``Authorization: Bearer <token>``; a token that is not valid is refused, also beside a valid login."""

    def authenticate(self, request: Request) -> tuple[User, None] | None:
        """Return the token's user, or None when the header brings no bearer token."""
        kind, _, text = get_authorization_header(request).decode("latin-1").partition(" ")
        if kind.lower() != "bearer":
            return None
        user = user_of_token(text.strip())
        if user is None:
            raise AuthenticationFailed("The token is unknown, expired or revoked.", code="invalid-token")
        return user, None

    def authenticate_header(self, request: Request) -> str:
        """Return the challenge, by which a refusal becomes 401 instead of 403."""
        return 'Bearer realm="api"'
