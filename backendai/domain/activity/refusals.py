"""Writes refused attempts to the audit log after the request, whose transaction was rolled back. At most one entry per
person, action and minute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q

from backendai.domain.activity.models import AuditEntry

PREFIX = "refused."
IS_REFUSED = Q(action__startswith=PREFIX) | Q(action="user.sign-in-failed")
_LONGEST_ACTION, _LONGEST_ID = 64, 64
_AT_MOST_EVERY = timedelta(minutes=1)
_MOST_AT_ONCE = 5


@dataclass(frozen=True, slots=True)
class Refusal:
    """An action that a person was not allowed to do. ``action``: in kebab case, such as ``set-role``."""

    actor_id: UUID
    action: str
    target_type: str
    target_id: str = ""
    details: dict[str, Any] = field(default_factory=dict)


@contextmanager
def refusals_of_request() -> Iterator[list[Refusal]]:
    """Yield the list to which ``note_refusal`` adds refusals inside this block."""
    found: list[Refusal] = []
    before = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(before)


def note_refusal(actor_id: UUID, action: str, target_type: str, target_id: Any = "", **details: Any) -> None:
    """Record a refused attempt until the end of the request. Outside of requests nothing is recorded."""
    found = _noted.get()
    if found is not None and len(found) < _MOST_AT_ONCE:
        found.append(Refusal(actor_id, action, target_type, str(target_id)[:_LONGEST_ID], details))


def write_refusals(refusals: list[Refusal], *, now: datetime) -> int:
    """Write the refusals that their actors did not repeat within the last minute; returns how many."""
    by_action = {(one.actor_id, _action(one)): one for one in refusals}
    if not by_action:
        return 0
    actors, actions = zip(*by_action, strict=True)
    recent = AuditEntry.objects.filter(at__gt=now - _AT_MOST_EVERY, actor__in=actors, action__in=actions)
    known = set(recent.values_list("actor", "action"))
    fresh = [one for key, one in by_action.items() if key not in known]
    AuditEntry.objects.bulk_create(
        AuditEntry(
            at=now,
            actor_id=one.actor_id,
            action=_action(one),
            target_type=one.target_type,
            target_id=one.target_id,
            details=one.details,
        )
        for one in fresh
    )
    return len(fresh)


def _action(refusal: Refusal) -> str:
    return f"{PREFIX}{refusal.action}"[:_LONGEST_ACTION]


_noted: ContextVar[list[Refusal] | None] = ContextVar("refusals", default=None)
