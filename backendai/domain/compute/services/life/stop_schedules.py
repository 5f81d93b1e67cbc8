"""Stops and resumes sessions at the times of their schedules, and warns their owners before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.db import transaction
from django.db.models import F

from backendai.base.core.errors import Conflict, UserError
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import User
from backendai.domain.activity.notices import NoticeKind
from backendai.domain.activity.services import audit
from backendai.domain.compute.models import ComputeSession, SessionNotice, StopSchedule
from backendai.domain.compute.reasons import BY_SCHEDULE
from backendai.domain.compute.services.life.resuming import resume_each
from backendai.domain.compute.services.life.stopping import most_stopped, stop_each
from backendai.domain.compute.services.notices.owners import announce
from backendai.domain.compute.services.status.history import Entry, write_history
from backendai.domain.compute.services.status.moves import StatusCause, publish_changes
from backendai.domain.compute.status import TERMINAL, Outcome, Phase, Status
from backendai.scheduler.stop_times import WARN_BEFORE, DailyTimes, Turn

_MISSED = "schedule-missed"
_Due = tuple[Any, datetime]  # a schedule with columns of its session, and the moment


def set_schedule(user: User, session: ComputeSession, times: DailyTimes, *, now: datetime) -> StopSchedule:
    """Set when the session is stopped and resumed each day. The caller checks that the user may see it.

    Raises Conflict if it has ended or cannot be stopped, or its owner may have no stopped sessions; and UserError for
    an unknown time zone or equal times.
    """
    if session.status in TERMINAL or not session.can_stop:
        text = Message("Only live interactive sessions have a schedule, and batch sessions that may be stopped.")
        raise Conflict(text, code="kind-not-stopped")
    most_stopped(session.owner)
    try:
        ZoneInfo(times.time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        text = Message("{zone} is not a time zone. Write one such as Europe/Berlin or UTC.", zone=times.time_zone[:64])
        raise UserError(text, field="time_zone", code="unknown-time-zone") from None
    if times.stop_at == times.resume_at:
        raise UserError("Enter another time than that of the stop.", field="resume_at", code="same-time")
    with transaction.atomic():
        _withdraw_warnings([session.pk])
        about = {**asdict(times), "acted_for": now, "warned_for": None}
        schedule, _ = StopSchedule.objects.update_or_create(session=session, defaults=about)
        _note(user, session, "session.set-schedule", **{name: str(value) for name, value in asdict(times).items()})
    return schedule


def delete_schedule(user: User, session: ComputeSession) -> bool:
    """Delete the session's schedule; returns whether there was one. The caller checks that the user may see it."""
    with transaction.atomic():
        _withdraw_warnings([session.pk])
        if not StopSchedule.objects.filter(session=session).delete()[0]:
            return False
        _note(user, session, "session.delete-schedule")
    return True


def follow_schedules(now: datetime) -> int:
    """Stop and resume the sessions whose time has come, and warn owners; returns how many. Each moment counts once: a
    session that somebody resumed after it goes on, and one that somebody stopped stays stopped.

    Two queries, and a fixed number for each stop and resume.
    """
    live = StopSchedule.objects.filter(session__status__in=[Status.RUNNING, Status.STOPPED])
    about = {"status": F("session__status"), "why": F("session__status_reason"), "owner": F("session__owner_id")}
    stops, resumes, warned = dict[UUID, _Due](), dict[UUID, _Due](), list[_Due]()
    rows: Any = live.annotate(name=F("session__name"), **about).order_by("pk")
    for one in rows:
        upcoming = one.times.next(Turn.STOP, now)
        if one.status == Status.RUNNING and upcoming and upcoming - now <= WARN_BEFORE and upcoming != one.warned_for:
            warned.append((one, upcoming))
        found = one.times.due(now)
        if found is None or found[0] <= one.acted_for:
            continue
        moment, turn = found
        if turn == Turn.STOP and one.status == Status.RUNNING:
            stops[one.pk] = (one, moment)
        elif turn == Turn.RESUME and one.status == Status.STOPPED and one.why == BY_SCHEDULE:
            resumes[one.pk] = (one, moment)
        else:
            _acted(one, moment)
    _warn(warned, now)
    return len(warned) + _stop(stops, now) + _resume(resumes, now)


def _withdraw_warnings(session_ids: Sequence[UUID]) -> None:
    stops = StopSchedule.objects.filter(session__in=session_ids).values("warned_for")
    SessionNotice.objects.filter(session__in=session_ids, kind=NoticeKind.ENDING, due_at__in=stops).delete()


def _warn(warned: Sequence[_Due], now: datetime) -> None:
    text = Message(
        "Its schedule stops it then: its files are stored. To prevent that, change the schedule on its page."
    )
    with transaction.atomic():
        announce([(one.pk, one.owner, text, at) for one, at in warned], now)
        for one, at in warned:
            StopSchedule.objects.filter(pk=one.pk).update(warned_for=at)
        publish_changes([one.pk for one, _ in warned])


def _stop(due: Mapping[UUID, _Due], now: datetime) -> int:
    def cause(pk: UUID) -> StatusCause:
        _acted(*due[pk])
        audit(None, "session.stop", "session", [pk], name=due[pk][0].name, by="its schedule")
        return StatusCause(Phase.RUN, BY_SCHEDULE, Message("Stopped by its schedule."), outcome=Outcome.EXPIRED)

    stopped = stop_each(list(due), cause, now=now)
    missed = [pk for pk in due if pk not in stopped]
    text = Message("Its schedule cannot stop it. The button Stop says why.")
    with transaction.atomic():
        _withdraw_warnings(missed)
        for pk in missed:
            _acted(*due[pk])
        entries = [Entry(pk, Status.RUNNING, Outcome.FAILURE, _MISSED, text) for pk in missed]
        write_history(entries, Phase.RUN, Status.RUNNING, now=now)
    return len(due)


def _resume(due: Mapping[UUID, _Due], now: datetime) -> int:
    rows = ComputeSession.objects.filter(pk__in=list(due), owner__is_active=True)
    with transaction.atomic():
        for one in due.values():
            _acted(*one)
        resumed = resume_each(rows, Message("Resumed by its schedule."), now=now)
        for session in resumed:
            audit(None, "session.resume", "session", [session.pk], name=session.name, by="its schedule")
    return len(resumed)


def _acted(schedule: StopSchedule, moment: datetime) -> None:
    StopSchedule.objects.filter(pk=schedule.pk).update(acted_for=moment)


def _note(user: User, session: ComputeSession, action: str, **details: str) -> None:
    audit(user.pk, action, "session", [session.pk], name=session.name, **details)
    publish_changes([session.pk])
