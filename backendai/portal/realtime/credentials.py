"""Identifies the user of a websocket by bearer token or login cookie. Open sockets check it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest, parse_cookie
from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.accounts.scopes import Scope
from backendai.domain.accounts.services import digest_of, token_of
from backendai.domain.accounts.sign_in.credentials import Credential, user_by
from backendai.domain.accounts.sign_in.second_factors import is_missing


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of a handshake.

    ``bearer`` None: no such header; ``login`` empty: no cookie. ``needed``: the scope that a token must have.
    ``key_pair``: the access key that signed it, which the caller has verified.
    """

    bearer: str | None
    login: str
    needed: Scope = Scope.READ
    key_pair: str = ""


def credentials_of(scope: Mapping[str, Any], needed: Scope = Scope.READ) -> Credentials:
    """Return the unchecked token and login of the handshake."""
    headers = headers_of(scope)
    kind, _, text = headers.get("authorization", "").partition(" ")
    cookies = parse_cookie(headers.get("cookie", ""))
    bearer = text.strip() if kind.lower() == "bearer" else None
    return Credentials(bearer, cookies.get(settings.SESSION_COOKIE_NAME, ""), needed)


def user_of(credentials: Credentials) -> User | None:
    """Return the current user of these credentials, or None if they are invalid.

    None after a sign-out, revocation, expiry or deactivation, and for a token without the scope. With an invalid token
    the login does not count. Queries the database.
    """
    if credentials.bearer is not None:
        token = token_of(credentials.bearer)
        return token.user if token and token.allows((credentials.needed,)) else None
    if credentials.key_pair:
        return user_by(credential_of(credentials), timezone.now())
    if not credentials.login:
        return None
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(credentials.login)
    user = get_user(request)
    return user if isinstance(user, User) and not is_missing(user, request.session) else None


def credential_of(credentials: Credentials) -> Credential:
    """Return the credential that must stay valid: the token, else the key pair, else the login."""
    if credentials.bearer is not None:
        return Credential(token=digest_of(credentials.bearer))
    return Credential(key_pair=credentials.key_pair) if credentials.key_pair else Credential(login=credentials.login)


def headers_of(scope: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers of the handshake by lower-case name."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
