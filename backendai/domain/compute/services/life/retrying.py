"""Restarts sessions after a failed start, as soon as none of their kernels can be running."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from backendai.base.core.messages import Message
from backendai.base.db.per_row_case import by_row
from backendai.base.wire.broker.hints import hint_on_commit
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.reasons import FINISHED, ReasonKind, reason_of
from backendai.domain.compute.services.life.ending import hint_stops
from backendai.domain.compute.services.life.restarting import Consequence, after_kernel
from backendai.domain.compute.services.placing.cluster_networks import next_number
from backendai.domain.compute.services.requests.roles import WAIT
from backendai.domain.compute.services.status.history import Entry, write_history
from backendai.domain.compute.services.status.ledger import lock_sessions_of
from backendai.domain.compute.services.status.moves import StatusCause, move, move_kernels, touch
from backendai.domain.compute.services.status.steps import steps_of
from backendai.domain.compute.status import STARTING, TERMINAL, Outcome, Phase, Status

SIBLING = "sibling-failed"
NETWORK_FAILED = "cluster-network-failed"
OF_A_NEW_RUN: dict[str, Any] = {"started_at": None, "ends_at": None, "is_end_moved": False}


@dataclass(frozen=True, slots=True)
class Expired:
    """A kernel whose start exceeded its time limit: phase, reason code, and message with numbers."""

    kernel_id: UUID
    session_id: UUID
    phase: Phase
    code: str
    message: str


def may_start_again(session: ComputeSession, kernels: Sequence[Kernel]) -> bool:
    """Return whether a session whose kernels ended can start again.

    It can if it never ran, all reasons are retriable and retries are left. A batch program that ran can start again
    only if its agent was lost and the owner allowed it.
    """
    ended = [
        kernel
        for kernel in kernels
        if kernel.status in TERMINAL and after_kernel(session, kernel) is not Consequence.GO_ON
    ]
    if runs_again(session) and all(_is_lost(kernel) for kernel in ended):
        return True
    return (
        session.status in STARTING
        and session.retries < session.resource_group.max_retries
        and all(_may_pass(session, kernel) for kernel in ended)
        and not (session.kind.runs_program and any(_has_begun(kernel) for kernel in kernels))
    )


def _has_begun(kernel: Kernel) -> bool:
    """Return whether a program of the session started in the kernel. Those that only wait for it do not count."""
    return kernel.started_at is not None and kernel.startup_command != WAIT


def runs_again(session: ComputeSession) -> bool:
    """Return whether the session becomes pending again when its agent is lost."""
    return (
        session.retry_on_agent_loss
        and session.kind.runs_again
        and session.status in STARTING | {Status.RUNNING}
        and session.retries < session.resource_group.max_retries
    )


def start_again(session: ComputeSession, kernels: Sequence[Kernel], *, now: datetime) -> None:
    """Make the session pending again if all its kernels have ended; else end these kernels. In the caller's
    transaction."""
    alive = [kernel.pk for kernel in kernels if kernel.status not in TERMINAL]
    if alive:
        if _stop_siblings([session.pk], now):
            hint_stops([session.pk])
        return
    guilty = [kernel for kernel in kernels if kernel.status_reason not in (SIBLING, FINISHED)] or list(kernels)
    first = min(guilty, key=lambda kernel: (kernel.ended_at or now, kernel.rank))
    tries = Message(
        "attempt {retries} of {max_retries}",
        retries=session.retries + 1,
        max_retries=session.resource_group.max_retries + 1,
    )
    why = StatusCause(
        phase_of(session.status),
        first.status_reason,
        f"{_named(session, first)} ({tries})".strip(),
        outcome=Outcome.NEED_RETRY,
        steps={session.pk: steps_of(kernels)},
    )
    avoid = list(dict.fromkeys([*session.avoid_agents, *(str(kernel.agent_id) for kernel in guilty)]))
    columns: dict[str, Any] = {"retries": session.retries + 1, "attempts": 0, "avoid_agents": avoid}
    columns |= OF_A_NEW_RUN | _other_network(session, guilty)
    moved = move([session.pk], Status.PENDING, why, now=now, **columns)
    if moved:
        requeue_kernels(kernels, now=now)
        hint_on_commit("controller.schedule_group", session.resource_group_id, queue=CONTROL_QUEUE)


def requeue_kernels(kernels: Sequence[Kernel], *, now: datetime, **columns: Any) -> None:
    """Make the ended kernels of a session pending, without what their last run left. In the caller's transaction."""
    fresh: dict[str, Any] = {
        "ended_at": None,
        "started_at": None,
        "exit_code": None,
        "forced_at": None,
        "is_unconfirmed": False,
        "steps": [],
        "restarts": 0,
        "starts_after": None,
        "is_held": by_row(Kernel, {kernel.pk: bool(kernel.after) for kernel in kernels}, "boolean"),
    }
    move_kernels([kernel.pk for kernel in kernels], Status.PENDING, now=now, **fresh | columns)


def expire_starts(expired: Collection[Expired], *, now: datetime) -> int:
    """Order agents to end all kernels of sessions whose start took too long; returns how many sessions.

    When the agents confirm, the sessions start again. Writes an EXPIRED history row for each. Kernels that have
    progressed meanwhile are unchanged, and a concurrent call changes nothing.
    """
    if not expired:
        return 0
    with transaction.atomic():
        lock_sessions_of([one.kernel_id for one in expired])
        late = Kernel.objects.select_for_update(of=("self",)).filter(
            pk__in=[one.kernel_id for one in expired], status__in=STARTING
        )
        still = set(late.values_list("pk", flat=True))
        by_code: dict[str, list[Expired]] = {}
        for one in expired:
            if one.kernel_id in still:
                by_code.setdefault(one.code, []).append(one)
        for code, some in by_code.items():
            move_kernels([one.kernel_id for one in some], Status.TERMINATING, reason=code, now=now)
        sessions = {one.session_id: one for one in expired if one.kernel_id in still}
        touch(list(sessions))  # locks the sessions, so that history rows follow each other without a gap
        _stop_siblings(list(sessions), now)
        _write_expired(sessions, now)
        hint_stops(sessions)
    return len(sessions)


def expire_restarts(expired: Collection[Expired], *, now: datetime) -> int:
    """Order agents to end kernels whose restart took too long; returns how many kernels.

    Their sessions are running, and end with this reason when the agents confirm. Kernels that have progressed meanwhile
    are unchanged.
    """
    if not expired:
        return 0
    with transaction.atomic():
        lock_sessions_of([one.kernel_id for one in expired])
        late = Kernel.objects.filter(pk__in=[one.kernel_id for one in expired], status__in=STARTING)
        still = set(late.values_list("pk", flat=True))
        for one in expired:
            if one.kernel_id in still:
                move_kernels([one.kernel_id], Status.TERMINATING, reason=one.code, message=one.message, now=now)
        sessions = {one.session_id for one in expired if one.kernel_id in still}
        touch(sessions)
        hint_stops(sessions)
    return len(still)


def phase_of(status: str) -> Phase:
    """Return the phase of a session's life to which this status belongs."""
    if status == Status.PULLING:
        return Phase.PRECONDITION
    return Phase.START if status in STARTING else Phase.RUN


def _other_network(session: ComputeSession, guilty: Collection[Kernel]) -> dict[str, Any]:
    """Return another network number for a session that could not join its own: another deployment, or a network of the
    engine, may have its addresses."""
    if session.cluster_network is None or all(kernel.status_reason != NETWORK_FAILED for kernel in guilty):
        return {}
    return {"cluster_network": next_number(session.cluster_network)}


def _may_pass(session: ComputeSession, kernel: Kernel) -> bool:
    # A locally built image may be missing on one agent and present on another.
    reason = reason_of(kernel.status_reason)
    return reason.is_retriable or (kernel.started_image.is_built_here and reason.kind == ReasonKind.IMAGE)


def _is_lost(kernel: Kernel) -> bool:
    return kernel.status_reason == SIBLING or reason_of(kernel.status_reason).kind == ReasonKind.AGENT_LOST


def _named(session: ComputeSession, kernel: Kernel) -> str:
    reason = kernel.reason_text
    return (
        Message("{hostname}: {reason}", hostname=kernel.hostname, reason=reason) if session.cluster_size > 1 else reason
    )


def _stop_siblings(session_ids: Collection[UUID], now: datetime) -> set[UUID]:
    siblings = Kernel.objects.filter(session__in=session_ids, status__in=STARTING | {Status.RUNNING})
    return move_kernels(list(siblings.values_list("pk", flat=True)), Status.TERMINATING, reason=SIBLING, now=now)


def _write_expired(sessions: Mapping[UUID, Expired], now: datetime) -> None:
    statuses = dict(ComputeSession.objects.filter(pk__in=sessions).values_list("pk", "status"))
    rows: dict[tuple[Phase, str], list[Entry]] = {}
    for pk, one in sessions.items():
        status = statuses[pk]
        entry = Entry(pk, status, Outcome.EXPIRED, one.code, one.message)
        rows.setdefault((one.phase, status), []).append(entry)
    for (phase, status), entries in rows.items():
        write_history(entries, phase, status, now=now)
