"""Checks whether a credential is still valid. Connections that outlive a request check theirs repeatedly."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY, get_user
from django.contrib.sessions.models import Session
from django.http import HttpRequest

from backendai.domain.accounts.models import AccessToken, KeyPair, User
from backendai.domain.accounts.sign_in.second_factors import is_missing

_REMEMBERED_LOGINS = 4096


@dataclass(frozen=True, slots=True)
class Credential:
    """The credential of a request: the session key of a login, the digest of a bearer token, or an access key."""

    login: str = ""
    token: str = ""
    key_pair: str = ""


def user_by(credential: Credential, now: datetime) -> User | None:
    """Return the user of a credential; None if the credential has ended.

    A credential ends with a sign-out, a new password, a revocation, its expiry or a deactivation.
    """
    if credential.token:
        token = AccessToken.objects.select_related("user").filter(digest=credential.token).first()
        return token.user if token and token.is_valid(now) else None
    if credential.key_pair:
        pairs = KeyPair.objects.select_related("user").filter(pk=credential.key_pair, is_active=True).exclude(secret="")
        pair = pairs.first()
        return pair.user if pair and pair.user.is_active else None
    if not credential.login:
        return None
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(credential.login)
    user = get_user(request)
    if not isinstance(user, User) or not user.is_active or is_missing(user, request.session):
        return None
    return user


def fingerprints_of(credentials: Collection[Credential], now: datetime) -> dict[Credential, Hashable]:
    """Return a fingerprint of each credential.

    It changes when the user, their role or domain changes, or when the credential becomes invalid. At most four queries
    for all of them.
    """
    if not any(one.login or one.token or one.key_pair for one in credentials):
        return {one: None for one in credentials}
    logins = _logins([one.login for one in credentials if one.login], now)
    holders = _tokens([one.token for one in credentials if one.token], now)
    holders |= _pairs([one.key_pair for one in credentials if one.key_pair])
    holders |= {key: holder for key, (holder, _) in logins.items() if holder is not None}
    people = _people(set(holders.values()))
    found = {one: holders.get(one.token or one.key_pair or one.login) for one in credentials}
    return {one: (holder, logins.get(one.login), people.get(holder or "")) for one, holder in found.items()}


def _logins(keys: list[str], now: datetime) -> dict[str, tuple[str | None, str]]:
    rows = Session.objects.filter(session_key__in=keys, expire_date__gt=now) if keys else Session.objects.none()
    return {key: _holder_of(data) for key, data in rows.values_list("session_key", "session_data")}


@lru_cache(_REMEMBERED_LOGINS)
def _holder_of(session_data: str) -> tuple[str | None, str]:
    decoded: dict[str, Any] = Session(session_data=session_data).get_decoded()
    return decoded.get(SESSION_KEY), decoded.get("_auth_user_hash", "")


def _tokens(digests: list[str], now: datetime) -> dict[str, str]:
    rows = AccessToken.objects.filter(digest__in=digests) if digests else AccessToken.objects.none()
    found = rows.values_list("digest", "user_id", "expires_at")
    return {digest: str(user_id) for digest, user_id, end in found if end is None or end > now}


def _pairs(access_keys: list[str]) -> dict[str, str]:
    rows = KeyPair.objects.filter(pk__in=access_keys, is_active=True) if access_keys else KeyPair.objects.none()
    return {access_key: str(user_id) for access_key, user_id in rows.values_list("pk", "user_id")}


def _people(ids: set[str]) -> dict[str, Hashable]:
    fields = ("is_active", "role", "domain_id", "password", "credentials_version")
    return {str(row[0]): row[1:] for row in User.objects.filter(pk__in=ids).values_list("pk", *fields)} if ids else {}
