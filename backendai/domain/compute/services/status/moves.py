"""The only writer of statuses: compare-and-set for many rows at once, with history and browser events."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from backendai.base.core.messages import shortened
from backendai.base.db.bulk import among, update_returning
from backendai.base.wire.broker.hints import hint_on_commit
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.base.wire.browser import SessionEvent, publish_on_commit
from backendai.domain.compute.models import ComputeSession, Kernel, SessionMount
from backendai.domain.compute.services.notices.owners import SERVED, Moved, columns_for, note_moves
from backendai.domain.compute.services.status.history import NO_STEPS, Entry, write_history
from backendai.domain.compute.services.status.ledger import free
from backendai.domain.compute.status import (
    KERNEL_MOVES,
    PLACED,
    SESSION_MOVES,
    TERMINAL,
    Outcome,
    Phase,
    Status,
    sources_of,
)


def release_mounts(session_ids: Collection[UUID], now: datetime) -> None:
    """Mark the mounts of these sessions as released, in the caller's transaction. No query for no sessions."""
    if session_ids:
        SessionMount.objects.filter(session__in=among(session_ids), released_at=None).update(released_at=now)


@dataclass(frozen=True, slots=True)
class StatusCause:
    """The reason for a change of status: phase, code in kebab case, message and numbers. ``steps``: by session, a JSON
    list as text. ``codes``: by session, the code for the history if it differs."""

    phase: Phase
    code: str = ""
    message: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    outcome: Outcome = Outcome.SUCCESS
    steps: Mapping[UUID, str] = field(default_factory=dict)
    codes: Mapping[UUID, str] = field(default_factory=dict)


_NO_LONGER_WAITING = {"wait_record": None, "wait_digest": "", "queue_position": None}
_RUNS_LOOK = TERMINAL | {Status.SCHEDULED}  # an element has ended, or the next ones may be released
_ENDPOINTS_LOOK = TERMINAL | {Status.RUNNING, Status.TERMINATING}
_REASON_STAYS = frozenset({Status.STOPPED, Status.TERMINATED, Status.CANCELLED, Status.ERROR})
_STAMPS = {
    Status.SCHEDULED: "scheduled_at",
    Status.RUNNING: "started_at",
    Status.STOPPED: "stopped_at",
    Status.TERMINATING: "terminating_at",
    Status.TERMINATED: "ended_at",
    Status.CANCELLED: "ended_at",
    Status.ERROR: "ended_at",
}


def move(
    session_ids: Collection[UUID],
    to: Status,
    why: StatusCause,
    *,
    now: datetime | None = None,
    only_from: Collection[Status] | None = None,
    **columns: Any,
) -> set[UUID]:
    """Move sessions to status ``to``; returns the ids of the moved sessions. Sessions whose status does not allow this
    are skipped; ``only_from`` restricts the allowed statuses further. Writes one history row for each, notifies owners,
    and informs browsers after commit. The first reason of an end is kept."""
    if not session_ids:
        return set()
    now = now or timezone.now()
    changes: dict[str, Any] = {"status": to, "changed_at": now, "version": F("version") + 1} | columns
    changes |= {"moved_from": F("status")} | _NO_LONGER_WAITING
    if to in _STAMPS:
        changes.setdefault(_STAMPS[to], now)
    if to not in _REASON_STAYS or (to in (Status.CANCELLED, Status.STOPPED) and why.code):
        changes |= {"status_reason": why.code, "status_message": shortened(why.message), "status_data": dict(why.data)}
    with transaction.atomic():
        allowed = [source for source in sources_of(to, SESSION_MOVES) if only_from is None or source in only_from]
        rows = ComputeSession.objects.filter(pk__in=among(session_ids), status__in=allowed)
        found = update_returning(
            rows, changes, ("id", "owner_id", "moved_from", "version", "mount_count", *columns_for(to))
        )
        moved = [(Moved(_id(pk), _id(owner), *more), source, version) for pk, owner, source, version, _, *more in found]
        if to in TERMINAL:  # every kernel has ended now
            release_mounts([_id(pk) for pk, _, _, _, mounts, *_ in found if mounts], now)
        _write_history([(one.session_id, source) for one, source, _ in moved], to, why, now)
        quiet = {(Status.STOPPING, Status.RUNNING), (Status.TERMINATING, Status.TERMINATED)}
        told = [one for one, source, _ in moved if (source, to) not in quiet]
        note_moves(told, to, why.code, now)
        _wake_runs([one for one, _, _ in moved], to)
        _wake_endpoints([one for one, _, _ in moved], to)
        publish_on_commit(
            SessionEvent(str(one.session_id), str(one.owner_id), str(to), version) for one, _, version in moved
        )
    return {one.session_id for one, _, _ in moved}


def move_kernels(
    kernel_ids: Collection[UUID],
    to: Status,
    *,
    reason: str = "",
    message: str = "",
    now: datetime | None = None,
    **columns: Any,
) -> set[UUID]:
    """Move kernels to status ``to``; returns the ids of the moved kernels. Frees the slots of kernels that are no
    longer placed."""
    if not kernel_ids:
        return set()
    now = now or timezone.now()
    changes: dict[str, Any] = {"status": to, "changed_at": now} | columns
    changes |= {"moved_from": F("status")}
    if reason:
        changes |= {"status_reason": reason, "status_message": shortened(message)}
    if to in TERMINAL:
        changes |= {"ended_at": now, "progress": None, "fetched_bytes": None, "image_bytes": None}
    with transaction.atomic():
        allowed = sources_of(to, KERNEL_MOVES)
        rows = Kernel.objects.filter(pk__in=among(kernel_ids), status__in=allowed)
        moved = {_id(pk) for (pk,) in update_returning(rows, changes, ("id",))}
        if to not in PLACED:
            free(moved)
    return moved


def touch(session_ids: Collection[UUID]) -> None:
    """Increment the versions of these sessions, and inform browsers after commit. For changes other than the status,
    such as progress or a wait reason."""
    if not session_ids:
        return
    with transaction.atomic():
        ComputeSession.objects.filter(pk__in=among(session_ids)).update(version=F("version") + 1)
        publish_changes(session_ids)


def publish_changes(session_ids: Collection[UUID]) -> None:
    """After commit, inform browsers about sessions whose versions have just been incremented."""
    if session_ids:
        sessions = ComputeSession.objects.filter(pk__in=among(session_ids)).order_by()
        rows = sessions.values_list("pk", "owner_id", "status", "version")
        publish_on_commit(SessionEvent(str(pk), str(owner), status, version) for pk, owner, status, version in rows)


def _wake_runs(moved: Collection[Moved], to: Status) -> None:
    if to in _RUNS_LOOK and any(one.run_id for one in moved):
        hint_on_commit("controller.run_pipelines", queue=CONTROL_QUEUE)


def _wake_endpoints(moved: Collection[Moved], to: Status) -> None:
    """Send a hint to run the pass over endpoints at once, if replicas started or failed. Requests could be waiting for
    them."""
    if to in _ENDPOINTS_LOOK and any(one.session_type in SERVED for one in moved):
        hint_on_commit("controller.run_serving", queue=CONTROL_QUEUE)


def _write_history(moved: Collection[tuple[UUID, str]], to: Status, why: StatusCause, now: datetime) -> None:
    tells = why.outcome != Outcome.SUCCESS or to in TERMINAL or to == Status.TERMINATING
    code = why.code if tells else ""
    entries = [
        Entry(pk, source, why.outcome, why.codes.get(pk, code), why.message, why.steps.get(pk, NO_STEPS))
        for pk, source in moved
    ]
    write_history(entries, why.phase, to, now=now)


def _id(value: UUID | str) -> UUID:
    return value if isinstance(value, UUID) else UUID(value)  # SQLite returns text
