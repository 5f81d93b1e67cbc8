"""Restarts single kernels on their agents, and decides how the end of a kernel affects its session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

from django.db.models import F

from backendai.base.core.messages import Message
from backendai.base.db.per_row_case import by_row
from backendai.base.wire.broker.hints import hint_on_commit
from backendai.base.wire.broker.queues import node_queue
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.reasons import FINISHED, ReasonKind, reason_of
from backendai.domain.compute.services.status.history import Entry, write_history
from backendai.domain.compute.services.status.ledger import Claim, allocate
from backendai.domain.compute.services.status.moves import move_kernels, touch
from backendai.domain.compute.status import OnFailure, Outcome, Phase, Status

MOST_RESTARTS = 3  # consecutive ones
_PROVEN = timedelta(minutes=10)  # after a run of this length, restarts are counted from 0
_LONGEST_WAIT = timedelta(seconds=60)


class Consequence(Enum):
    """The effect of a kernel's end on its session: the session ends, it continues without the kernel, or the kernel
    restarts."""

    END = "end"
    GO_ON = "go on"
    RESTART = "restart"


def after_kernel(session: ComputeSession, kernel: Kernel) -> Consequence:
    """Return the effect of this kernel's end on its session, by the setting ``on_failure``. A kernel restarts only on
    its own agent, if that is alive and not drained."""
    is_done = session.kind.runs_program and kernel.status_reason == FINISHED
    if is_done:
        ends = kernel.rank == 0 and session.done_when in ("", "main")
        return Consequence.END if ends else Consequence.GO_ON
    if kernel.on_failure == OnFailure.TOLERATE and kernel.rank > 0 and kernel.started_at:
        return Consequence.GO_ON
    if kernel.on_failure == OnFailure.RESTART and _may_restart(kernel):
        return Consequence.RESTART
    return Consequence.END


def restart(some: Sequence[Kernel], *, now: datetime) -> None:
    """Move kernels that have just ended back to SCHEDULED on their own agents, with the next generation. The first
    restart is immediate, the second after 4 s, the third after 8 s.

    Call in the transaction of their end, so that no other session can take their slots.
    """
    counts = {kernel.pk: _restarts_of(kernel) + 1 for kernel in some}
    by_wait: dict[timedelta, list[Kernel]] = {}
    for kernel in some:
        by_wait.setdefault(wait_before(counts[kernel.pk]), []).append(kernel)
    for wait, alike in by_wait.items():
        _restart(alike, counts, now + wait if wait else None, now)


def wait_before(restarts: int) -> timedelta:
    """Return the pause before restart number ``restarts`` (the first is 1): 0 s, 4 s, 8 s and so on, at most 60 s."""
    return min(timedelta(seconds=2**restarts), _LONGEST_WAIT) if restarts > 1 else timedelta()


def _restart(some: Sequence[Kernel], counts: Mapping[UUID, int], after: datetime | None, now: datetime) -> None:
    own = {kernel.pk: counts[kernel.pk] for kernel in some}
    fresh: dict[str, Any] = {"started_at": None, "ended_at": None, "exit_code": None, "container_id": "", "steps": []}
    moved = move_kernels(
        list(own),
        Status.SCHEDULED,
        now=now,
        generation=F("generation") + 1,
        restarts=by_row(Kernel, own, "integer"),
        starts_after=after,
        **fresh,
    )
    taken = [kernel for kernel in some if kernel.pk in moved and kernel.agent_id]
    allocate(Claim(kernel.pk, kernel.agent_id, tuple(kernel.amounts.items())) for kernel in taken if kernel.agent_id)
    _record(taken, counts, now)
    for kernel in taken:
        if after is None and kernel.agent:
            queue = node_queue(kernel.agent.name)
            hint_on_commit("node.start_kernel", str(kernel.pk), kernel.generation + 1, queue=queue)


def _may_restart(kernel: Kernel) -> bool:
    agent = kernel.agent
    return (
        reason_of(kernel.status_reason).kind == ReasonKind.PROGRAM
        and kernel.started_at is not None
        and _restarts_of(kernel) < MOST_RESTARTS
        and agent is not None
        and agent.status == Agent.Status.ALIVE
        and not agent.is_drained
    )


def _restarts_of(kernel: Kernel) -> int:
    """Return the number of consecutive restarts; 0 if the last run was long."""
    ran = kernel.ended_at - kernel.started_at if kernel.ended_at and kernel.started_at else timedelta()
    return 0 if ran >= _PROVEN else kernel.restarts


def _record(some: Sequence[Kernel], counts: Mapping[UUID, int], now: datetime) -> None:
    """Write a history row for each restart, and inform browsers."""
    by_status: dict[str, list[Entry]] = {}
    for kernel in some:
        text = Message(
            "{hostname}: {reason} It starts again on its agent (restart {count} of {most}).",
            hostname=kernel.hostname,
            reason=kernel.reason_text,
            count=counts[kernel.pk],
            most=MOST_RESTARTS,
        )
        entry = Entry(kernel.session_id, kernel.session.status, Outcome.NEED_RETRY, kernel.status_reason, text)
        by_status.setdefault(kernel.session.status, []).append(entry)
    for status, entries in by_status.items():
        write_history(entries, Phase.RUN, status, now=now)
    touch({kernel.session_id for kernel in some})
