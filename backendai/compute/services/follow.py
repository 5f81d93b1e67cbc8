"""A session follows its kernels: what their statuses together mean for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from backendai.compute.models import ComputeSession, Kernel
from backendai.compute.services.ending import end_sessions
from backendai.compute.services.moves import Why, move
from backendai.compute.status import FAULTS, LIVE, STARTING, TERMINAL, Phase, Result, SessionType, Status
from backendai.wire.broker import hint_on_commit
from backendai.wire.queues import CONTROL_QUEUE

_ORDER = [Status.SCHEDULED, Status.PREPARING, Status.PULLING, Status.CREATING, Status.RUNNING]


def follow(session_ids: Collection[UUID], *, now: datetime) -> None:
    """Bring these sessions to where their kernels are, in the caller's transaction."""
    sessions = ComputeSession.objects.filter(pk__in=session_ids, status__in=LIVE - {Status.PENDING})
    for session in sessions.prefetch_related("kernels"):
        _follow_one(session, sorted(session.kernels.all(), key=lambda kernel: kernel.rank), now)


def _follow_one(session: ComputeSession, kernels: Sequence[Kernel], now: datetime) -> None:
    ended = [kernel for kernel in kernels if kernel.status in TERMINAL]
    if session.status != Status.TERMINATING and ended:
        _end_because_of(session, _first(ended), now)
        session.refresh_from_db(fields=["status", "status_reason", "started_at"])
    if session.status == Status.TERMINATING:
        if len(ended) == len(kernels):
            _finish(session, now)
        return
    behind = min((kernel.status for kernel in kernels), key=_place_in_order)
    if behind in _ORDER and behind != session.status:
        move([session.pk], Status(behind), Why(Phase.START), now=now)


def _place_in_order(status: str) -> int:
    return _ORDER.index(Status(status)) if status in _ORDER else len(_ORDER)


def _first(ended: Sequence[Kernel]) -> Kernel:
    return min(ended, key=lambda kernel: (kernel.ended_at is None, kernel.ended_at, kernel.rank))


def _end_because_of(session: ComputeSession, kernel: Kernel, now: datetime) -> None:
    phase = Phase.START if session.status in STARTING else Phase.RUN
    result = _result(session, kernel)
    why = Why(
        phase, kernel.status_reason, kernel.reason_text, {"exit_code": kernel.exit_code, "kernel": str(kernel.pk)}
    )
    end_sessions([session.pk], why, now=now, result=result)


def _result(session: ComputeSession, kernel: Kernel) -> Result:
    if session.session_type != SessionType.BATCH:
        return Result.UNDEFINED
    return Result.SUCCESS if kernel.exit_code == 0 and kernel.rank == 0 else Result.FAILED


def _finish(session: ComputeSession, now: datetime) -> None:
    to = Status.TERMINATED
    if session.status_reason in FAULTS:
        to = Status.ERROR
    elif session.started_at is None and session.session_type != SessionType.BATCH:
        to = Status.CANCELLED
    move([session.pk], to, Why(Phase.TERMINATE), now=now)
    hint_on_commit("controller.schedule_group", session.resource_group_id, queue=CONTROL_QUEUE)
