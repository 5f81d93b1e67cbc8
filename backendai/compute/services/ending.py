"""Ending sessions: one deed for the owner's button, an administrator, the idle checker and the repair loop."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from backendai.accounts.models import User
from backendai.activity.services import audit
from backendai.cluster.models import Agent
from backendai.compute.models import ComputeSession, Kernel
from backendai.compute.services.moves import Why, move, move_kernels
from backendai.compute.status import LIVE, PLACED, Phase, Status
from backendai.core.errors import Conflict
from backendai.wire.broker import hint_on_commit
from backendai.wire.queues import CONTROL_QUEUE, node_queue


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of each session: never ran, on its way out, ended on an administrator's word, or nothing to do."""

    cancelled: set[UUID]
    terminating: set[UUID]
    forced: set[UUID]


def terminate_session(session: ComputeSession, user: User, *, force: bool = False) -> Ended:
    """End a session that the user may see. Force kills at once; for a superadmin it also frees what a silent node
    holds. Raises Conflict when it has ended already."""
    if session.status not in LIVE:
        raise Conflict(f"The session has ended already ({session.get_status_display()}).", code="already-ended")
    own = session.owner_id == user.pk
    code = "user-requested" if own else "admin-requested"
    now = timezone.now()
    with transaction.atomic():
        ended = end_sessions([session.pk], Why(Phase.TERMINATE, code, f"Ended by {user.email}."), now=now, force=force)
        forced = _give_up_on_silent_nodes([session.pk], user, now) if force and user.is_superadmin else set()
        audit(user.pk, "session.terminate", "session", [session.pk], force=force, forced=bool(forced))
    return Ended(ended.cancelled, ended.terminating, forced)


def end_sessions(
    session_ids: Collection[UUID], why: Why, *, now: datetime, force: bool = False, **columns: Any
) -> Ended:
    """End these sessions with this reason: pending ones at once, placed ones when their nodes confirm it."""
    with transaction.atomic():
        cancelled = move(session_ids, Status.CANCELLED, why, now=now, only_from=[Status.PENDING], **columns)
        _cancel_kernels(cancelled, now)
        rest = set(session_ids) - cancelled
        terminating = move(rest, Status.TERMINATING, why, now=now, **columns)
        kernels = Kernel.objects.filter(session__in=terminating, status__in=PLACED).values_list("pk", flat=True)
        move_kernels(list(kernels), Status.TERMINATING, reason=why.code, message=why.message, now=now)
        _hint_stops(rest if force else terminating)
        groups = ComputeSession.objects.filter(pk__in=cancelled).values_list("resource_group_id", flat=True)
        for group_id in set(groups):
            hint_on_commit("controller.schedule_group", group_id, queue=CONTROL_QUEUE)
    return Ended(cancelled, terminating, set())


def _cancel_kernels(session_ids: Collection[UUID], now: datetime) -> None:
    kernels = Kernel.objects.filter(session__in=session_ids).values_list("pk", flat=True)
    move_kernels(list(kernels), Status.CANCELLED, now=now)


def _hint_stops(session_ids: Collection[UUID]) -> None:
    rows = Kernel.objects.filter(session__in=session_ids, status=Status.TERMINATING)
    for kernel_id, generation, agent in rows.values_list("pk", "generation", "agent__name"):
        hint_on_commit("node.stop_kernel", str(kernel_id), generation, queue=node_queue(agent))


def _give_up_on_silent_nodes(session_ids: Collection[UUID], user: User, now: datetime) -> set[UUID]:
    """End kernels whose node does not answer, on an administrator's word; the message says that they may still run."""
    silent = Kernel.objects.filter(session__in=session_ids, status=Status.TERMINATING).exclude(
        agent__in=Agent.objects.answering()
    )
    for kernel_id, agent in list(silent.values_list("pk", "agent__name")):
        message = f"Ended by force by {user.email}; node {agent} has not confirmed it and may still run it."
        move_kernels([kernel_id], Status.TERMINATED, message=message, reason="force-terminated", now=now)
        Kernel.objects.filter(pk=kernel_id).update(is_unconfirmed=True)
    open_sessions = set(
        Kernel.objects.filter(session__in=session_ids, status__in=LIVE).values_list("session_id", flat=True)
    )
    why = Why(Phase.TERMINATE, "force-terminated", "Ended by force.")
    return move(set(session_ids) - open_sessions, Status.TERMINATED, why, now=now)
