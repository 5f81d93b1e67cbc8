"""Derives each session's status from the statuses of its kernels, for many sessions at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from backendai.base.core.messages import Message, for_column
from backendai.base.db.bulk import among, list_of, listed, update_rows
from backendai.base.db.per_row_case import by_row
from backendai.base.wire.broker.hints import hint_on_commit
from backendai.base.wire.broker.queues import node_queue
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.reasons import FINISHED, STOPPED, reason_of
from backendai.domain.compute.services.life.end_times import longest_runs
from backendai.domain.compute.services.life.ending import end_each, finish
from backendai.domain.compute.services.life.restarting import Consequence, after_kernel, restart
from backendai.domain.compute.services.life.retrying import may_start_again, phase_of, start_again
from backendai.domain.compute.services.requests.roles import ALL, MAIN
from backendai.domain.compute.services.status.moves import StatusCause, move, touch
from backendai.domain.compute.services.status.steps import steps_of
from backendai.domain.compute.status import LIVE, STARTING, TERMINAL, UNPLACED, Phase, Result, Status


def released_now(session: ComputeSession, kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the held kernels that can start: every kernel of the roles before them is running or has finished."""
    held = [kernel for kernel in kernels if kernel.is_held and kernel.status in STARTING]
    if not held:
        return []
    open_roles = {kernel.role for kernel in kernels if not _is_ready(session, kernel)}
    return [kernel for kernel in held if not open_roles.intersection(kernel.after)]


def release(some: Collection[Kernel], *, now: datetime) -> None:
    """Allow agents to start these held kernels, in the caller's transaction. Their deadline begins now."""
    if not some:
        return
    rows = Kernel.objects.filter(pk__in=among([kernel.pk for kernel in some]), is_held=True)
    rows.update(is_held=False, changed_at=now)
    touch({kernel.session_id for kernel in some})
    for kernel in some:
        if kernel.agent:
            hint_on_commit("node.start_kernel", str(kernel.pk), kernel.generation, queue=node_queue(kernel.agent.name))


def done_with(session: ComputeSession, kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the kernels whose end ends the session by ``done_when``; empty until all of them have finished.

    If some were successful, only these are returned. Empty for a session that ends with its main kernel.
    """
    if session.done_when in ("", MAIN):
        return []
    deciding = [kernel for kernel in kernels if session.done_when in (ALL, kernel.role)]
    if not deciding or not all(_is_over(session, kernel) for kernel in deciding):
        return []
    return [kernel for kernel in deciding if kernel.status_reason == FINISHED] or deciding


def _is_ready(session: ComputeSession, kernel: Kernel) -> bool:
    return kernel.status == Status.RUNNING or _is_over(session, kernel)


def _is_over(session: ComputeSession, kernel: Kernel) -> bool:
    return kernel.status in TERMINAL and after_kernel(session, kernel) is Consequence.GO_ON


_ALIVE = STARTING | {Status.RUNNING, Status.STOPPING}
_ORDER = [Status.SCHEDULED, Status.PULLING, Status.CREATING, Status.RUNNING]
_COLUMNS = (
    "session__status",
    "session__status_reason",
    "session__retries",
    "session__retry_on_agent_loss",
    "session__avoid_agents",
    "session__session_type",
    "session__cluster_size",
    "session__started_at",
    "session__stopped_at",
    "session__done_when",
    "session__resource_group__max_retries",
    "session__image__is_built_here",
    "image__is_built_here",
    "role",
    "rank",
    "hostname",
    "startup_command",
    "on_failure",
    "after",
    "is_held",
    "restarts",
    "generation",
    "slots",
    "agent__name",
    "agent__status",
    "agent__drain_started_at",
    "status",
    "status_reason",
    "status_message",
    "exit_code",
    "steps",
    "started_at",
    "ended_at",
)


@dataclass(slots=True)
class _Followed:
    """A session with its kernels, the main one first."""

    session: ComputeSession
    kernels: list[Kernel] = field(default_factory=list)

    @property
    def ended(self) -> list[Kernel]:
        return [kernel for kernel in self.kernels if kernel.status in TERMINAL]

    @property
    def deciding(self) -> list[Kernel]:
        """The ended kernels whose end ends the session."""
        return [kernel for kernel in self.ended if after_kernel(self.session, kernel) is Consequence.END]

    @property
    def finishing(self) -> list[Kernel]:
        """The kernels whose end ends the session by ``done_when``; empty until all of them have finished."""
        return done_with(self.session, self.kernels)

    @property
    def released(self) -> list[Kernel]:
        """The held kernels that can start now."""
        return released_now(self.session, self.kernels)

    @property
    def returning(self) -> list[Kernel]:
        """The ended kernels that restart on their agents."""
        return [kernel for kernel in self.ended if after_kernel(self.session, kernel) is Consequence.RESTART]

    @property
    def is_over(self) -> bool:
        return len(self.ended) == len(self.kernels)

    @property
    def is_going(self) -> bool:
        """Whether the kernels were ordered to end, as the session terminates, or as its homes are stored.

        One may have been lost between the two, with a reason of its own.
        """
        is_stored = any(kernel.status_reason == STOPPED for kernel in self.kernels)
        return self.session.status == Status.TERMINATING or (self.session.status == Status.STOPPING and is_stored)


@dataclass(slots=True)
class _Changes:
    """The changes that the kernels' statuses require.

    Sessions: ``again`` become pending again, ``ending`` terminate, ``over`` end, as all their kernels have ended,
    ``further`` get the status that is the key. Kernels: ``returning`` restart, ``released`` may start.
    """

    again: list[_Followed] = field(default_factory=list)
    ending: list[_Followed] = field(default_factory=list)
    over: list[_Followed] = field(default_factory=list)
    returning: list[Kernel] = field(default_factory=list)
    released: list[Kernel] = field(default_factory=list)
    further: dict[Status, list[_Followed]] = field(default_factory=lambda: defaultdict(list))


def follow(session_ids: Collection[UUID], *, now: datetime) -> None:
    """Set the statuses of these sessions from the statuses of their kernels, in the caller's transaction. A fixed
    number of statements, except for sessions that start again."""
    changes = _look(session_ids)
    for one in changes.again:
        start_again(one.session, one.kernels, now=now)
    restart(changes.returning, now=now)
    release(changes.released, now=now)
    for to, some in changes.further.items():
        _advance(some, to, now)
    ending = _end(changes.ending, now)
    over = [one.session for one in (*changes.over, *ending) if one.is_over]
    if over:
        finish(over, StatusCause(Phase.TERMINATE), now=now)


def _look(session_ids: Collection[UUID]) -> _Changes:
    followed: dict[UUID, _Followed] = {}
    for kernel in _of_live(list_of(session_ids)):
        followed.setdefault(kernel.session_id, _Followed(kernel.session)).kernels.append(kernel)
    changes = _Changes()
    for one in followed.values():
        _sort(one, changes)
    return changes


def _sort(one: _Followed, changes: _Changes) -> None:
    session = one.session
    if one.is_going:
        if one.is_over:
            changes.over.append(one)
    elif one.deciding:
        again = may_start_again(session, one.kernels)
        (changes.again if again else changes.ending).append(one)
    elif one.finishing:
        changes.ending.append(one)
    elif session.status != Status.STOPPING:
        changes.returning += one.returning
        changes.released += one.released
        behind = min((kernel.status for kernel in one.kernels), key=_place_in_order)
        if behind in _ORDER and behind != session.status:
            changes.further[Status(behind)].append(one)


def _place_in_order(status: str) -> int:
    return _ORDER.index(Status(status)) if status in _ORDER else len(_ORDER)


def _advance(some: Sequence[_Followed], to: Status, now: datetime) -> None:
    ids = [one.session.pk for one in some]
    if to != Status.RUNNING:
        move(ids, to, StatusCause(phase_of(to)), now=now)
        return
    why = StatusCause(Phase.START, steps={one.session.pk: steps_of(one.kernels) for one in some})
    ends = {pk: now + longest for pk, longest in longest_runs(ids).items()}
    move([pk for pk in ids if pk not in ends], to, why, now=now)
    if ends:
        move(list(ends), to, why, now=now, ends_at=by_row(ComputeSession, ends, "timestamptz"))


def _end(some: Sequence[_Followed], now: datetime) -> list[_Followed]:
    """End sessions because one of their kernels ended; returns the sessions that are terminating now."""
    groups: dict[tuple[Phase, str, Result], dict[UUID, StatusCause]] = defaultdict(dict)
    steps = {one.session.pk: steps_of(one.kernels) for one in some if one.session.status in STARTING}
    for one in some:
        first = _first(one.deciding or one.finishing)
        data = {"exit_code": first.exit_code, "kernel": str(first.pk), "hostname": first.hostname}
        message = first.reason_text
        if len(one.kernels) > 1:
            message = Message("{hostname}: {reason}", hostname=first.hostname, reason=message)
        outcome = reason_of(first.status_reason).outcome
        why = StatusCause(phase_of(one.session.status), first.status_reason, message, data, outcome, steps)
        groups[why.phase, why.code, _result(one.session, first)][one.session.pk] = why
    reasons: dict[UUID, StatusCause] = {}
    for (_, _, result), whys in groups.items():
        ended = end_each(whys, only_from=_ALIVE, now=now, result=result)
        reasons |= {pk: whys[pk] for pk in ended.terminating}
    _pass_message_on(some, reasons)
    return _on_their_way_out(some, reasons)


def _first(ended: Sequence[Kernel]) -> Kernel:
    return min(ended, key=lambda kernel: (kernel.ended_at is None, kernel.ended_at, kernel.rank))


def _result(session: ComputeSession, kernel: Kernel) -> Result:
    if not session.kind.has_result:
        return Result.UNDEFINED
    is_last = kernel.rank == 0 or bool(session.done_when)
    return Result.SUCCESS if kernel.exit_code == 0 and is_last else Result.FAILED


def _pass_message_on(some: Sequence[_Followed], reasons: Mapping[UUID, StatusCause]) -> None:
    """Give the message of the kernel that ended first to the session's other kernels."""
    texts = {
        kernel.pk: for_column(reasons[one.session.pk].message)
        for one in some
        if one.session.pk in reasons
        for kernel in one.kernels
        if kernel.status in STARTING | {Status.RUNNING}
    }
    columns: dict[str, tuple[str, Sequence[Any]]] = {"status_message": ("text", list(texts.values()))}
    update_rows(Kernel._meta.db_table, list(texts), columns, only_if=("status", Status.TERMINATING))


def _on_their_way_out(some: Sequence[_Followed], reasons: Mapping[UUID, StatusCause]) -> list[_Followed]:
    others = [one.session.pk for one in some if one.session.pk not in reasons]
    rows = ComputeSession.objects.filter(pk__in=others, status=Status.TERMINATING) if others else ()
    ended_elsewhere = {session.pk: session for session in rows}
    found = []
    for one in some:
        if one.session.pk in reasons:
            one.session.status, one.session.status_reason = Status.TERMINATING, reasons[one.session.pk].code
            found.append(one)
        elif one.session.pk in ended_elsewhere:
            found.append(_Followed(ended_elsewhere[one.session.pk], one.kernels))
    return found


def _of_live(sessions: str) -> QuerySet[Kernel]:
    rows = Kernel.objects.filter(session__in=listed(sessions), session__status__in=LIVE - UNPLACED)
    related = rows.select_related("image", "agent", "session__image", "session__resource_group").only(*_COLUMNS)
    return related.order_by("session_id", "rank")
