"""Who opens a websocket: by bearer token or by the login's cookie, asked again while the socket is open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest, parse_cookie

from backendai.accounts.credentials import Credential
from backendai.accounts.models import User
from backendai.accounts.scopes import Scope
from backendai.accounts.second_factors import is_missing
from backendai.accounts.services import digest_of, token_of


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a handshake brought; ``bearer`` None: no such header, ``login`` empty: no cookie. ``needed``: the scope that
    a token must have for what is asked."""

    bearer: str | None
    login: str
    needed: Scope = Scope.READ


def credentials_of(scope: Mapping[str, Any], needed: Scope = Scope.READ) -> Credentials:
    """Return the token and the login that the handshake brought, not yet checked."""
    headers = headers_of(scope)
    kind, _, text = headers.get("authorization", "").partition(" ")
    cookies = parse_cookie(headers.get("cookie", ""))
    bearer = text.strip() if kind.lower() == "bearer" else None
    return Credentials(bearer, cookies.get(settings.SESSION_COOKIE_NAME, ""), needed)


def user_of(credentials: Credentials) -> User | None:
    """Return who they belong to now, or None: logged out, revoked, expired, disabled, a token without the scope. A bad
    token is not made good by a login beside it. Asks the database."""
    if credentials.bearer is not None:
        token = token_of(credentials.bearer)
        return token.user if token and token.allows((credentials.needed,)) else None
    if not credentials.login:
        return None
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(credentials.login)
    user = get_user(request)
    return user if isinstance(user, User) and not is_missing(user, request.session) else None


def credential_of(credentials: Credentials) -> Credential:
    """Return what has to last for them to be good."""
    if credentials.bearer is not None:
        return Credential(token=digest_of(credentials.bearer))
    return Credential(login=credentials.login)


def headers_of(scope: Mapping[str, Any]) -> dict[str, str]:
    """Return the handshake's headers by lower-case name."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
