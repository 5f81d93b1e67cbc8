"""Writes audit entries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

from django.conf import settings

from backendai.base.core.messages import Message
from backendai.domain.activity.models import AuditEntry
from backendai.domain.activity.request_facts import client_address

COMMAND_LINE = Message("the command line")  # as ``by`` in the details: an operator did it with a command, and no user


def audit(actor_id: UUID | None, action: str, target_type: str, target_ids: Iterable[Any], **details: Any) -> None:
    """Write one entry per target, in the caller's transaction."""
    AuditEntry.objects.bulk_create(
        AuditEntry(actor_id=actor_id, action=action, target_type=target_type, target_id=str(target), details=details)
        for target in target_ids
    )


def audit_each(
    actor_id: UUID | None,
    action: str,
    target_type: str,
    details: Mapping[Any, Mapping[str, Any]],
    *,
    addresses: Mapping[Any, str] = MappingProxyType({}),
) -> None:
    """Write one entry per target with its own details, in one statement of the caller's transaction. ``addresses``:
    client addresses by target, for actions without a request."""
    AuditEntry.objects.bulk_create(
        AuditEntry(
            actor_id=actor_id,
            action=action,
            target_type=target_type,
            target_id=str(target),
            details=dict(about),
            address=addresses.get(target) or client_address(),
        )
        for target, about in details.items()
    )


_MOST_AT_ONCE = 5_000


def delete_old_audit(now: datetime) -> int:
    """Delete audit entries older than ``KEEP_AUDIT``, the oldest first; returns how many. 0: keep all."""
    if not settings.KEEP_AUDIT:
        return 0
    old = AuditEntry.objects.filter(at__lt=now - settings.KEEP_AUDIT).order_by("at")
    number: int = AuditEntry.objects.filter(pk__in=list(old.values_list("pk", flat=True)[:_MOST_AT_ONCE])).delete()[0]
    return number
