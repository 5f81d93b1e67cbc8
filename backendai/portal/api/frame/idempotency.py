"""Reads the header ``Idempotency-Key``, with which a repeated request has no second effect."""

from __future__ import annotations

from rest_framework.request import Request

from backendai.base.core.errors import UserError

_LONGEST = 128


def idempotency_key(request: Request) -> str | None:
    """Return the request's ``Idempotency-Key``, or None. Raises UserError for an invalid one."""
    key = request.headers.get("Idempotency-Key", "").strip()
    if len(key) > _LONGEST or not key.isprintable():
        raise UserError(
            "An Idempotency-Key has at most {longest} printable characters.", longest=_LONGEST, code="invalid-key"
        )
    return key or None
