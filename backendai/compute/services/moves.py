"""The one writer of status: compare-and-set for many rows at once, with history and browser events."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from backendai.compute.models import ComputeSession, Kernel, SchedulingRecord, history_entry
from backendai.compute.services.ledger import free
from backendai.compute.status import KERNEL_MOVES, PLACED, SESSION_MOVES, TERMINAL, Outcome, Phase, Status, sources_of
from backendai.wire.browser import SessionEvent, publish_on_commit


@dataclass(frozen=True, slots=True)
class Why:
    """Why a status changes: the phase that does it, a kebab-case code, a sentence, numbers, and what was looked at."""

    phase: Phase
    code: str = ""
    message: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    outcome: Outcome = Outcome.SUCCESS
    steps: Mapping[UUID, list[dict[str, Any]]] = field(default_factory=dict)


_REASON_STAYS = frozenset({Status.TERMINATED, Status.CANCELLED, Status.ERROR})
_STAMPS = {
    Status.SCHEDULED: "scheduled_at",
    Status.RUNNING: "started_at",
    Status.TERMINATING: "terminating_at",
    Status.TERMINATED: "ended_at",
    Status.CANCELLED: "ended_at",
    Status.ERROR: "ended_at",
}


def move(
    session_ids: Collection[UUID],
    to: Status,
    why: Why,
    *,
    now: datetime | None = None,
    only_from: Collection[Status] | None = None,
    **columns: Any,
) -> set[UUID]:
    """Move sessions to ``to`` and return those that moved; the others were not in a status that allows it.

    ``only_from`` narrows the statuses that the table of moves allows.
    Writes one history row each and tells browsers after commit. The first reason of an end stays.
    """
    if not session_ids:
        return set()
    now = now or timezone.now()
    mark = uuid.uuid4()
    changes: dict[str, Any] = {"status": to, "changed_at": now, "version": F("version") + 1} | columns
    changes |= {"moved_from": F("status"), "move_id": mark}
    if to in _STAMPS:
        changes[_STAMPS[to]] = now
    if to not in _REASON_STAYS or (to == Status.CANCELLED and why.code):
        changes |= {"status_reason": why.code, "status_message": why.message[:500], "status_data": dict(why.data)}
    with transaction.atomic():
        allowed = [source for source in sources_of(to, SESSION_MOVES) if only_from is None or source in only_from]
        ComputeSession.objects.filter(pk__in=session_ids, status__in=allowed).update(**changes)
        moved = list(
            ComputeSession.objects.filter(pk__in=session_ids, move_id=mark).values_list(
                "pk", "moved_from", "owner_id", "version"
            )
        )
        _write_history([(pk, source) for pk, source, _, _ in moved], to, why, now)
        publish_on_commit(SessionEvent(str(pk), str(owner), str(to), version) for pk, _, owner, version in moved)
    return {pk for pk, _, _, _ in moved}


def move_kernels(
    kernel_ids: Collection[UUID],
    to: Status,
    *,
    reason: str = "",
    message: str = "",
    now: datetime | None = None,
    **columns: Any,
) -> set[UUID]:
    """Move kernels to ``to`` and return those that moved; leaving the placed statuses frees their allocations."""
    if not kernel_ids:
        return set()
    now = now or timezone.now()
    mark = uuid.uuid4()
    changes: dict[str, Any] = {"status": to, "changed_at": now} | columns
    changes |= {"moved_from": F("status"), "move_id": mark}
    if reason:
        changes |= {"status_reason": reason, "status_message": message[:500]}
    if to in TERMINAL:
        changes |= {"ended_at": now, "progress": None}
    with transaction.atomic():
        allowed = sources_of(to, KERNEL_MOVES)
        Kernel.objects.filter(pk__in=kernel_ids, status__in=allowed).update(**changes)
        moved = set(Kernel.objects.filter(pk__in=kernel_ids, move_id=mark).values_list("pk", flat=True))
        if to not in PLACED:
            free(moved)
    return moved


def touch(session_ids: Collection[UUID]) -> None:
    """Tell browsers that something about these sessions changed besides their status (progress, a wait reason)."""
    if not session_ids:
        return
    with transaction.atomic():
        ComputeSession.objects.filter(pk__in=session_ids).update(version=F("version") + 1)
        rows = ComputeSession.objects.filter(pk__in=session_ids).values_list("pk", "owner_id", "status", "version")
        publish_on_commit(SessionEvent(str(pk), str(owner), status, version) for pk, owner, status, version in rows)


def _write_history(moved: Collection[tuple[UUID, str]], to: Status, why: Why, now: datetime) -> None:
    tells = why.outcome != Outcome.SUCCESS or to in TERMINAL or to == Status.TERMINATING
    SchedulingRecord.objects.bulk_create(
        history_entry(
            session_id=pk,
            phase=why.phase,
            result=why.outcome,
            from_status=source,
            to_status=to,
            error_code=why.code if tells else "",
            message=why.message,
            sub_steps=why.steps.get(pk, []),
            created_at=now,
            updated_at=now,
        )
        for pk, source in moved
    )
