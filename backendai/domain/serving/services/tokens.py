"""Tokens with which callers send requests to one endpoint."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.core.names import clean_line
from backendai.domain.accounts.models import User
from backendai.domain.activity.services import audit
from backendai.domain.serving.models import Endpoint, EndpointToken
from backendai.domain.serving.moves import grow_versions

MOST_TOKENS = 100
_PREFIX = "bsk-"


def digest_of(text: str) -> str:
    """Return the form in which a token is kept; it is long and random, so one SHA-256 is enough."""
    return hashlib.sha256(text.encode()).hexdigest()


def create_token(
    endpoint: Endpoint,
    user: User,
    name: str,
    *,
    expires_at: datetime | None = None,
    per_minute: int = 0,
    opens_all: bool = False,
) -> tuple[EndpointToken, str]:
    """Return the token and its text, which nobody sees again. ``opens_all``: every endpoint of the owner, which only
    the owner may decide. Raises UserError."""
    name = clean_line(name) or "token"
    now = timezone.now()
    if expires_at is not None and expires_at <= now:
        raise UserError("The expiry is in the past: choose a later time.", field="expires_at", code="invalid-date")
    if per_minute < 0:
        raise UserError("Enter 0 (unlimited) or more.", field="per_minute", code="invalid-rate")
    if EndpointToken.objects.valid_at(now).filter(endpoint=endpoint).count() >= MOST_TOKENS:
        raise UserError(
            "An endpoint has at most {most} tokens: revoke one first.", most=MOST_TOKENS, code="too-many-tokens"
        )
    if opens_all and endpoint.owner_id != user.pk:
        message = "Only the owner of the endpoints creates a token that opens all of them."
        raise UserError(message, field="opens_all", code="not-owner")
    text = _PREFIX + secrets.token_urlsafe(32)
    with transaction.atomic():
        token = EndpointToken.objects.create(
            endpoint=endpoint,
            name=name,
            digest=digest_of(text),
            hint=text[-4:],
            per_minute=per_minute,
            opens_all=opens_all,
            expires_at=expires_at,
            created_by=user,
        )
        grow_versions(_opened_by(token))
        audit(user.pk, "endpoint.token-create", "endpoint", [endpoint.pk], name=endpoint.name, token=name)
    return token, text


def revoke_token(token: EndpointToken, user: User) -> None:
    """Let the token open nothing any more; app proxies know within two seconds. Revoked already is success."""
    with transaction.atomic():
        changed = EndpointToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now())
        if changed:
            grow_versions(_opened_by(token))
            audit(user.pk, "endpoint.token-revoke", "endpoint", [token.endpoint_id], token=token.name)


def _opened_by(token: EndpointToken) -> list[UUID]:
    if not token.opens_all:
        return [token.endpoint_id]
    return list(Endpoint.objects.live().filter(owner=token.endpoint.owner_id).values_list("pk", flat=True))
