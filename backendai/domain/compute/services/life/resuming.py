"""Resumes stopped sessions: they wait for a place again, and their kernels start from their stored homes."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import F, QuerySet

from backendai.base.core.errors import Conflict
from backendai.base.core.messages import Message
from backendai.base.wire.broker.hints import hint_on_commit
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.domain.accounts.acting import both_names
from backendai.domain.accounts.models import User
from backendai.domain.activity.jobs import cancel_job
from backendai.domain.activity.services import audit
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.reasons import GAVE_WAY
from backendai.domain.compute.services.life.draining import DRAINED
from backendai.domain.compute.services.life.retrying import OF_A_NEW_RUN, requeue_kernels
from backendai.domain.compute.services.life.stopping import CANCELLED, give_up_stop, stop_grace, stopping_now
from backendai.domain.compute.services.notices.owners import withdraw_warnings
from backendai.domain.compute.services.status.moves import StatusCause, move
from backendai.domain.compute.status import Phase, Status

_MOST_AT_ONCE = 100


def resume_session(user: User, session: ComputeSession, *, now: datetime) -> None:
    """Make a stopped session pending again, with the place in the queue of its launch. The caller checks that the user
    may see it.

    A session whose homes are being stored goes on as it is. Raises Conflict if it is neither, or its owner is
    deactivated.
    """
    if session.status == Status.STOPPING:
        _let_go_on(user, session, now)
        return
    if not session.owner.is_active:
        raise Conflict("The owner of this session is deactivated.", code="owner-inactive")
    with transaction.atomic():
        if not _requeue(session, Message("Resumed by {user}.", user=user.email), now):
            raise Conflict("Only a stopped session can be resumed.", code="not-stopped")
        names = {} if session.owner_id == user.pk else both_names(user, session.owner)
        audit(user.pk, "session.resume", "session", [session.pk], name=session.name, **names)


def resume_displaced(now: datetime) -> int:
    """Make sessions pending again that were stopped as their agent was drained, or for others, at most
    ``_MOST_AT_ONCE``; returns how many."""
    rows = ComputeSession.objects.filter(
        status=Status.STOPPED, status_reason__in=(DRAINED, GAVE_WAY), owner__is_active=True
    )
    text = Message("Resumed by the platform, which had stopped it.")
    return len(resume_each(rows, text, now=now))


def resume_each(rows: QuerySet[ComputeSession], message: str, *, now: datetime) -> list[ComputeSession]:
    """Make these stopped sessions pending, at most ``_MOST_AT_ONCE``; returns those that were stopped."""
    with transaction.atomic():
        return [one for one in rows.order_by("stopped_at", "pk")[:_MOST_AT_ONCE] if _requeue(one, message, now)]


def _requeue(session: ComputeSession, message: str, now: datetime) -> bool:
    """Make a stopped session pending in the caller's transaction; returns whether it was stopped."""
    why = StatusCause(Phase.SCHEDULE, "resumed", message)
    fresh = OF_A_NEW_RUN | {"retries": 0, "attempts": 0, "avoid_agents": [], "resumes": F("resumes") + 1}
    if not move([session.pk], Status.PENDING, why, now=now, only_from=[Status.STOPPED], **fresh):
        return False
    withdraw_warnings([session.pk])
    requeue_kernels(list(session.kernels.all()), now=now, status_reason="", status_message="")
    hint_on_commit("controller.schedule_group", session.resource_group_id, queue=CONTROL_QUEUE)
    return True


def _let_go_on(user: User, session: ComputeSession, now: datetime) -> None:
    """Cancel the storing of the session's homes."""
    job = stopping_now([session.pk]).get(session.pk)
    if stop_grace(session) is not None:
        text = Message("Its program is ending. Resume it when it is stopped.")
        raise Conflict(text, code="not-stopped")
    if job is None:
        text = Message("Its files are stored already. Resume it when it is stopped, in a few seconds.")
        raise Conflict(text, code="not-stopped")
    cancel_job(user, job.pk, now=now)
    give_up_stop(session.pk, CANCELLED, now=now, is_cancelled=True)
