"""Ends sessions. Owners' pages, administrators, idle checkers and the repair pass use this module."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from backendai.base.core.errors import Conflict
from backendai.base.core.messages import Message, for_column, shortened
from backendai.base.db.bulk import among, update_rows
from backendai.base.wire.broker.hints import hint_on_commit
from backendai.base.wire.broker.queues import CONTROL_QUEUE, node_queue
from backendai.domain.accounts.acting import both_names
from backendai.domain.accounts.models import User
from backendai.domain.activity.services import audit
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession, Kernel, SchedulingRecord
from backendai.domain.compute.reasons import ReasonKind, reason_of
from backendai.domain.compute.services.images.commits import refuse_while_saved
from backendai.domain.compute.services.life.home_retention import refuse_while_home_is_kept
from backendai.domain.compute.services.status.moves import StatusCause, move, move_kernels
from backendai.domain.compute.status import LIVE, PLACED, TERMINAL, UNPLACED, Outcome, Phase, Result, Status, When

_MOST_AT_ONCE = 1000
# A session that ends for these is stopped if its homes are stored: the work of its last stop is not lost with it.
_LOSSES = frozenset({ReasonKind.QUEUE, ReasonKind.IMAGE, ReasonKind.AGENT_LOST, ReasonKind.FAULT})


@dataclass(frozen=True, slots=True)
class Ended:
    """The ids of cancelled, terminating and force-terminated sessions. Unchanged sessions are in none of the sets.

    ``cancelled``: sessions without slots, which end at once.
    """

    cancelled: set[UUID]
    terminating: set[UUID]
    forced: set[UUID]


def terminate_session(session: ComputeSession, user: User, *, force: bool = False) -> Ended:
    """Terminate a session. The caller checks that the user may see it. ``force`` does not wait for its programs.

    For a superadmin, ``force`` also frees the slots of kernels on an unreachable agent, and of kernels that their agent
    could not end within the group's ``terminate_timeout``. Raises Conflict if the session has ended, and without
    ``force`` while it is being saved or its home copied.
    """
    if session.status not in LIVE:
        raise Conflict(
            "The session has already ended ({status}).", status=session.get_status_display(), code="already-ended"
        )
    if not force:
        refuse_while_saved(session)
        refuse_while_home_is_kept(session)
    own = session.owner_id == user.pk
    code = "user-requested" if own else "admin-requested"
    now = timezone.now()
    with transaction.atomic():
        ended = end_sessions(
            [session.pk],
            StatusCause(Phase.TERMINATE, code, Message("Ended by {user}.", user=user.email)),
            now=now,
            force=force,
        )
        forced = end_stuck_kernels([session.pk], user, now) if force and user.is_superadmin else set()
        details = {"name": session.name, "force": force, "forced": bool(forced)}
        names = {} if own else both_names(user, session.owner)
        audit(user.pk, "session.terminate", "session", [session.pk], **details, **names)
    return Ended(ended.cancelled, ended.terminating, forced)


def end_sessions(
    session_ids: Collection[UUID], why: StatusCause, *, now: datetime, force: bool = False, **columns: Any
) -> Ended:
    """Cancel pending sessions at once, and terminate placed ones, which end when their agents confirm. Pending sessions
    that depend on a cancelled session are cancelled, too. ``columns``: further columns to set.

    A pending session whose homes are stored is stopped again, unless a person requested the end."""
    with transaction.atomic(savepoint=False):
        ended = _end(session_ids, why, now, force=force, **columns)
        cancel_dependents(ended.cancelled, now=now)
    return ended


def end_each(
    whys: Mapping[UUID, StatusCause], *, only_from: Collection[Status], now: datetime, **columns: Any
) -> Ended:
    """End sessions for reasons with the same phase, code and outcome, but different messages. ``only_from``: sessions
    in other statuses are unchanged. A fixed number of statements."""
    if not whys:
        return Ended(set(), set(), set())
    with transaction.atomic(savepoint=False):
        ended = _end_each(whys, now, only_from, **columns)
        cancel_dependents(ended.cancelled, now=now)
    return ended


def cancel_dependents(session_ids: Collection[UUID] | None = None, *, now: datetime) -> set[UUID]:
    """Cancel pending sessions that depend on an unsuccessful session; returns the ids of the cancelled ones.

    ``session_ids``: only these ended sessions are considered (None: all). Sessions that depend on a cancelled one are
    cancelled, too: two more statements per level. At most ``_MOST_AT_ONCE`` dependencies per level.
    """
    cancelled: set[UUID] = set()
    failed = session_ids
    while failed is None or failed:
        whys = _unfulfillable(failed)
        ended = _end_each(whys, now, [Status.PENDING]).cancelled if whys else set()
        cancelled |= ended
        failed = ended
    return cancelled


def finish(sessions: Collection[ComputeSession], why: StatusCause, *, now: datetime) -> set[UUID]:
    """Move TERMINATING sessions without live kernels to their final status; returns the ids of the moved sessions.
    Pending sessions that needed their success are cancelled. The groups are scheduled after commit."""
    targets: dict[Status, list[UUID]] = defaultdict(list)
    for session in sessions:
        targets[_last_status(session)].append(session.pk)
    moved: set[UUID] = set()
    for to, ids in targets.items():
        moved |= move(ids, to, _last_why(why, to, sessions), now=now)
    ids = [session.pk for session in sessions]
    cancel_dependents(ids, now=now)
    waiting = ComputeSession.objects.filter(depends_on__in=ids, status=Status.PENDING).order_by()
    groups = set(waiting.values_list("resource_group_id", flat=True))
    for group_id in sorted(groups | {session.resource_group_id for session in sessions}):
        hint_on_commit("controller.schedule_group", group_id, queue=CONTROL_QUEUE)
    return moved


def _last_why(why: StatusCause, to: Status, sessions: Collection[ComputeSession]) -> StatusCause:
    if to in (Status.CANCELLED, Status.STOPPED):
        return replace(why, code="")  # a code would replace the reason
    if to == Status.ERROR and not why.code:
        codes = {session.pk: session.status_reason for session in sessions}
        return replace(why, outcome=Outcome.FAILURE, codes=codes)
    return why


def hint_stops(session_ids: Collection[UUID]) -> None:
    """After commit, send hints to the agents of terminating kernels of these sessions."""
    rows = Kernel.objects.filter(session__in=session_ids, status=Status.TERMINATING)
    for kernel_id, generation, agent in rows.values_list("pk", "generation", "agent__name"):
        hint_on_commit("node.stop_kernel", str(kernel_id), generation, queue=node_queue(agent))


def end_stuck_kernels(session_ids: Collection[UUID], user: User, now: datetime) -> set[UUID]:
    """End terminating kernels whose agents are unreachable or failed to end them; returns the ids of ended sessions.

    Only an administrator can request this. The message says that the kernels may still run. Three more statements per
    agent.
    """
    killed_in_vain = Q(forced_at__lt=now - F("session__resource_group__terminate_timeout"))
    stuck = Kernel.objects.filter(
        killed_in_vain | ~Q(agent__in=Agent.objects.answering()), session__in=session_ids, status=Status.TERMINATING
    )
    by_agent: dict[str, list[UUID]] = defaultdict(list)
    for kernel_id, agent in stuck.values_list("pk", "agent__name"):
        by_agent[agent].append(kernel_id)
    for agent, kernels in by_agent.items():
        message = Message(
            "Ended by force by {user}; agent {agent} has not confirmed it and may still run it.",
            user=user.email,
            agent=agent,
        )
        move_kernels(kernels, Status.TERMINATED, message=message, reason="force-terminated", now=now)
        Kernel.objects.filter(pk__in=kernels).update(is_unconfirmed=True)
    over = ComputeSession.objects.filter(pk__in=session_ids, status=Status.TERMINATING)
    why = StatusCause(Phase.TERMINATE, "force-terminated", Message("Ended by force."))
    return finish(list(over.exclude(kernels__status__in=LIVE)), why, now=now)


def _end(
    session_ids: Collection[UUID],
    why: StatusCause,
    now: datetime,
    *,
    only_from: Collection[Status] = LIVE,
    force: bool = False,
    **columns: Any,
) -> Ended:
    placed = [status for status in only_from if status not in UNPLACED]
    waiting = session_ids if Status.PENDING in only_from else []
    kept = _stop_again(waiting, why, now)
    cancelled = move(set(waiting) - kept, Status.CANCELLED, why, now=now, only_from=[Status.PENDING], **columns)
    _cancel_kernels(cancelled | kept, now)
    rest = set(session_ids) - cancelled - kept if placed or Status.STOPPED in only_from else set()
    terminating = move(rest, Status.TERMINATING, why, now=now, only_from=placed, **columns)
    if Status.STOPPED in only_from:
        cancelled |= _end_stopped(rest - terminating, why, now, **columns)
    kernels = Kernel.objects.filter(session__in=terminating, status__in=PLACED).values_list("pk", flat=True)
    move_kernels(list(kernels), Status.TERMINATING, reason=why.code, message=why.message, now=now)
    if force:
        ending = Kernel.objects.filter(session__in=rest, status=Status.TERMINATING, forced_at=None)
        ending.update(forced_at=now)
    hint_stops(rest if force else terminating)
    groups = ComputeSession.objects.filter(pk__in=cancelled).values_list("resource_group_id", flat=True)
    for group_id in set(groups):
        hint_on_commit("controller.schedule_group", group_id, queue=CONTROL_QUEUE)
    return Ended(cancelled, terminating, set())


def _end_stopped(session_ids: Collection[UUID], why: StatusCause, now: datetime, **columns: Any) -> set[UUID]:
    about = {"status_reason": why.code, "status_message": shortened(why.message), "status_data": dict(why.data)}
    return move(session_ids, Status.TERMINATED, why, now=now, only_from=[Status.STOPPED], **about | columns)


def _stop_again(session_ids: Collection[UUID], why: StatusCause, now: datetime) -> set[UUID]:
    """Stop pending sessions whose homes are stored, unless a person requested their end."""
    if reason_of(why.code).kind == ReasonKind.REQUEST or not session_ids:
        return set()
    stored = ComputeSession.objects.filter(pk__in=among(session_ids), status=Status.PENDING, stopped_at__isnull=False)
    return move(list(stored.values_list("pk", flat=True)), Status.STOPPED, why, now=now, only_from=[Status.PENDING])


def _end_each(whys: Mapping[UUID, StatusCause], now: datetime, only_from: Collection[Status], **columns: Any) -> Ended:
    shared = replace(next(iter(whys.values())), message="", data={})
    ended = _end(whys.keys(), shared, now, only_from=only_from, **columns)
    moved = list(ended.cancelled | ended.terminating)
    update_rows(
        ComputeSession._meta.db_table,
        moved,
        {
            "status_message": ("text", [for_column(whys[pk].message) for pk in moved]),
            "status_data": ("jsonb", [json.dumps(dict(whys[pk].data)) for pk in moved]),
        },
    )
    rows = SchedulingRecord.objects.filter(session__in=moved, created_at=now, error_code=shared.code)
    records = list(rows.filter(phase=shared.phase, result=shared.outcome).values_list("uid", "session_id"))
    texts = [for_column(whys[pk].message) for _, pk in records]
    update_rows(SchedulingRecord._meta.db_table, [uid for uid, _ in records], {"message": ("text", texts)}, key="uid")
    return ended


def _unfulfillable(failed: Collection[UUID] | None) -> dict[UUID, StatusCause]:
    """Return why pending sessions can never start, by session id: a dependency ended otherwise than required.
    ``failed``: only these dependencies are considered (None: all). At most ``_MOST_AT_ONCE`` dependencies."""
    well = Q(to_computesession__status=Status.TERMINATED, to_computesession__result=Result.SUCCESS)
    needs = "from_computesession__depends_when"
    links = ComputeSession.depends_on.through.objects.filter(
        Q(~well, **{needs: When.SUCCESS}) | Q(well, **{needs: When.FAILURE}),
        from_computesession__status=Status.PENDING,
        to_computesession__status__in=TERMINAL,
    )
    if failed is not None:
        links = links.filter(to_computesession__in=failed)
    whys: dict[UUID, StatusCause] = {}
    rows = links.values_list(
        "from_computesession_id",
        "to_computesession_id",
        "to_computesession__name",
        "to_computesession__status_reason",
        needs,
    )
    for pk, dependency, name, reason, when in rows.order_by("pk")[:_MOST_AT_ONCE]:
        because = f" ({reason})" if reason else ""
        message = Message("Session {name}, which it depends on, did not succeed{because}.", name=name, because=because)
        if when == When.FAILURE:
            message = Message("Session {name} succeeded, and this one was to start if it fails.", name=name)
        data = {"dependency": str(dependency), "dependency_name": name, "dependency_reason": reason}
        whys.setdefault(pk, StatusCause(Phase.SCHEDULE, "dependency-failed", message, data, outcome=Outcome.GIVE_UP))
    return whys


def _cancel_kernels(session_ids: Collection[UUID], now: datetime) -> None:
    kernels = Kernel.objects.filter(session__in=session_ids).values_list("pk", flat=True)
    move_kernels(list(kernels), Status.CANCELLED, now=now)


def _last_status(session: ComputeSession) -> Status:
    reason = reason_of(session.status_reason)
    if session.status == Status.STOPPING or (session.stopped_at and reason.kind in _LOSSES):
        return Status.STOPPED
    if reason.final == Status.ERROR:
        return Status.ERROR
    if session.started_at is None and not session.kind.runs_program:
        return Status.CANCELLED
    return Status.TERMINATED
