"""Terminates sessions that have been stopped for too long, days after a warning. Their homes go to the trash."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, QuerySet

from backendai.base.core.messages import Message
from backendai.domain.activity.notices import NoticeKind
from backendai.domain.activity.services import audit_each
from backendai.domain.compute.models import ComputeSession, SessionNotice
from backendai.domain.compute.reasons import STOPPED_TOO_LONG
from backendai.domain.compute.services.life.ending import end_each
from backendai.domain.compute.services.notices.owners import announce
from backendai.domain.compute.services.status.moves import StatusCause
from backendai.domain.compute.status import Outcome, Phase, Status

WARN_BEFORE = timedelta(days=3)
_MOST_AT_ONCE = 500


def kept_until(session: ComputeSession) -> datetime | None:
    """Return when a stopped session will be terminated; None: never, or it is not stopped. One query if it is known."""
    if not settings.STOPPED_FOR or session.status != Status.STOPPED or session.stopped_at is None:
        return None
    told = SessionNotice.objects.filter(session=session, kind=NoticeKind.ENDING, created_at__gte=session.stopped_at)
    return told.values_list("due_at", flat=True).first() or session.stopped_at + settings.STOPPED_FOR


def end_long_stopped(now: datetime) -> int:
    """Warn the owners of sessions that were stopped ``STOPPED_FOR`` ago (0: never), or nearly, and terminate those
    whose announced end has come; returns how many. After a late warning they stay as long as after one in time."""
    if not settings.STOPPED_FOR:
        return 0
    lead = min(WARN_BEFORE, settings.STOPPED_FOR / 2)
    stopped = ComputeSession.objects.filter(status=Status.STOPPED)
    since = OuterRef("stopped_at")
    told = SessionNotice.objects.filter(session=OuterRef("pk"), kind=NoticeKind.ENDING, created_at__gte=since)
    untold = stopped.filter(stopped_at__lte=now - settings.STOPPED_FOR + lead).exclude(Exists(told))
    rows = untold.order_by("stopped_at", "pk").values_list("pk", "owner_id", "stopped_at")[:_MOST_AT_ONCE]
    text = Message(
        "Stopped sessions are terminated after {days} days; then its files go to the trash of your folders. "
        "Resume it to keep it.",
        days=settings.STOPPED_FOR.days,
    )
    warnings = [(pk, owner, text, max(at + settings.STOPPED_FOR, now + lead)) for pk, owner, at in rows if at]
    announce(warnings, now)
    return len(warnings) + _end_due(now)


def ends_due(now: datetime) -> QuerySet[SessionNotice]:
    """Return the warnings of stopped sessions whose announced end has come."""
    due = SessionNotice.objects.filter(kind=NoticeKind.ENDING, due_at__lte=now, session__status=Status.STOPPED)
    return due.filter(created_at__gte=F("session__stopped_at"))


def _end_due(now: datetime) -> int:
    text = Message("It had been stopped for {days} days.", days=settings.STOPPED_FOR.days)
    why = StatusCause(Phase.SWEEP, STOPPED_TOO_LONG, text, outcome=Outcome.EXPIRED)
    names = dict(ends_due(now).order_by("pk").values_list("session_id", "session__name")[:_MOST_AT_ONCE])
    with transaction.atomic():
        ended = end_each(dict.fromkeys(names, why), only_from=[Status.STOPPED], now=now).cancelled
        details = {pk: {"name": names[pk], "by": "the retention of stopped sessions"} for pk in ended}
        audit_each(None, "session.terminate", "session", details)
    return len(ended)
