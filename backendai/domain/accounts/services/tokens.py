"""Bearer tokens: shown once, stored as a hash, revoked by their owner."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from backendai.base.core.errors import NotFound, UserError
from backendai.base.core.messages import Message
from backendai.base.core.names import clean_line
from backendai.domain.accounts.models import AccessToken, Membership, User
from backendai.domain.accounts.scopes import Scope, all_scopes, clean_scopes
from backendai.domain.activity.services import COMMAND_LINE, audit

LONGEST_NAME = 64
_PREFIX = "bai_"
_TOUCH_AFTER = timedelta(minutes=1)


def create_token(
    user: User,
    name: str,
    *,
    scopes: Collection[str] | None = None,
    expires_at: datetime | None = None,
    maker: AccessToken | None = None,
    on_command_line: bool = False,
) -> tuple[AccessToken, str]:
    """Create a bearer token; return its row and its text, which is shown once.

    ``scopes`` None: all. A token created with the token ``maker`` has no more scopes and no later expiry.
    ``on_command_line``: an operator creates it, and the audit log says so.
    """
    name = clean_line(name)
    allowed = maker.scopes if maker else all_scopes()
    scopes = clean_scopes(allowed if scopes is None else scopes)
    if extra := sorted(set(scopes) - set(allowed)):
        raise UserError(
            "The token that asks lacks the scope {extra}.", extra=repr(extra[0]), field="scopes", code="token-scope"
        )
    if maker and maker.expires_at and (expires_at is None or expires_at > maker.expires_at):
        expires_at = maker.expires_at
    if not 1 <= len(name) <= LONGEST_NAME:
        raise UserError("Give the token a name of 1 to 64 characters.", field="name", code="invalid-name")
    if expires_at is not None and expires_at <= timezone.now():
        raise UserError("The expiry is in the past.", field="expires_at", code="invalid-date")
    text = _PREFIX + secrets.token_urlsafe(32)
    with transaction.atomic():
        token = AccessToken.objects.create(
            user=user, name=name, digest=digest_of(text), hint=text[:8], scopes=scopes, expires_at=expires_at
        )
        if on_command_line:
            about = {"by": COMMAND_LINE, "user": user.email, "token": str(token.pk)}
            audit(None, "token.create", "user", [user.pk], name=name, scopes=scopes, **about)
        else:
            audit(user.pk, "token.create", "token", [token.pk], name=name, scopes=scopes)
    return token, text


def create_token_for(user: User, name: str, *, scopes: Collection[str] | None = None) -> tuple[AccessToken, str]:
    """Create a token for a user on the command line, as ``create_token`` does.

    The scope ``admin`` is only for users who administer something. By default others do not get it; asking for it
    raises UserError.
    """
    administers = user.role != User.Role.USER or user.memberships.filter(role=Membership.Role.ADMIN).exists()
    if not administers:
        if scopes is not None and Scope.ADMIN in scopes:
            text = Message(
                "{user} administers nothing, so a token cannot have the scope admin: leave it out.", user=user.email
            )
            raise UserError(text, field="scopes", code="token-scope")
        scopes = [scope for scope in all_scopes() if scope != Scope.ADMIN] if scopes is None else scopes
    return create_token(user, name, scopes=scopes, on_command_line=True)


def revoke_token(user: User, token_id: object) -> None:
    """Delete a token of the user. Raises NotFound if the user has no such token."""
    with transaction.atomic():
        deleted, _ = AccessToken.objects.visible_to(user).filter(pk=token_id).delete()
        if not deleted:
            raise NotFound("Access token not found.")
        audit(user.pk, "token.revoke", "token", [token_id])


def token_of(text: str) -> AccessToken | None:
    """Return the valid bearer token with its active user, or None. Records its use at most once a minute."""
    if not text.startswith(_PREFIX) or len(text) > 128:
        return None
    now = timezone.now()
    token: AccessToken | None = next(iter(_of_digest(digest_of(text))), None)
    if token is None or not token.is_valid(now):
        return None
    if token.last_used_at is None or now - token.last_used_at > _TOUCH_AFTER:
        AccessToken.objects.filter(pk=token.pk).update(last_used_at=now)
    return token


def user_of_token(text: str) -> User | None:
    """Return the active user of a bearer token, or None. The token's scopes do not matter."""
    token = token_of(text)
    return token.user if token else None


def digest_of(text: str) -> str:
    """Return the digest by which a random token is stored. The tokens are long and random, so one SHA-256 is enough."""
    return hashlib.sha256(text.encode()).hexdigest()


def _of_digest(digest: Any) -> QuerySet[Any, Any]:
    return AccessToken.objects.filter(digest=digest).select_related("user").order_by()[:1]
