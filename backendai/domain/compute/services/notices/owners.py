"""Writes notifications for owners, in the transaction of the event. The owner's choices apply when notifications are
shown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Exists, OuterRef, Q
from django.utils.dateparse import parse_datetime

from backendai.base.core.messages import shortened
from backendai.base.core.session_kinds import kinds_with
from backendai.base.db.bulk import among, insert_from
from backendai.base.wire.browser import SessionEvent, publish_on_commit
from backendai.domain.activity.notice_sources import KEPT_FOR, NoticeSource
from backendai.domain.activity.notices import NoticeKind
from backendai.domain.compute.models import ComputeSession, SessionNotice
from backendai.domain.compute.reasons import FINISHED, reason_of
from backendai.domain.compute.status import Status

LONG_WAIT = timedelta(minutes=1)  # owners who wait for less are still watching
WARN_BEFORE = timedelta(hours=1)
TELL_BEFORE = timedelta(minutes=10)  # a start; who has not waited longer than that is still watching
MOST_KEPT = 200  # notifications per person
_SLACK = 50
_MOST_AT_ONCE = 500

SERVED = frozenset(kinds_with("is_served"))

# Ends that the owner requested or that complete the work cause no notification.
_EXPECTED = frozenset({"user-requested", "self-terminated", "replica-ended", "run-stopped"})

AnnouncedEnd = tuple[UUID, UUID, str, datetime]  # of a session: its id, its owner, why it ends, and when
SESSIONS = NoticeSource(
    SessionNotice,
    {kind: kind for kind in NoticeKind},
    related=("session__image",),
    deferred=("session__environ", "session__spec"),
)


class Moved(NamedTuple):
    """A session whose status has just changed, with the columns that ``note_moves`` needs. On SQLite, ``run_id`` and
    ``created_at`` may be strings."""

    session_id: UUID
    owner_id: UUID
    run_id: UUID | str | None = None
    session_type: str = ""
    created_at: datetime | str | None = None


def note_launch(session: ComputeSession) -> None:
    """Write the notification of a new session, marked as seen, in the caller's transaction."""
    if session.kind.is_served:
        return
    now = session.created_at
    SessionNotice.objects.bulk_create([_notice(session.pk, session.owner_id, NoticeKind.LAUNCHED, now, seen_at=now)])


def columns_for(to: Status) -> tuple[str, ...]:
    """Return the additional columns that ``note_moves`` needs if sessions move to ``to``."""
    usual = ("run_id", "session_type")
    return (*usual, "created_at") if to == Status.RUNNING else usual


def note_moves(moved: Sequence[Moved], to: Status, code: str, now: datetime) -> None:
    """Notify owners of sessions that moved to ``to``, in the caller's transaction.

    Owners are notified of a start after a long wait, a failure, a success, and an end that they did not request.
    Sessions of runs and endpoints are left out, as their owners are notified of the run or the endpoint.
    """
    moved = [one for one in moved if one.run_id is None and one.session_type not in SERVED]
    if to == Status.RUNNING:
        _write([each for each in moved if now - _time(each.created_at) > LONG_WAIT], NoticeKind.STARTED, now)
    elif to in (Status.TERMINATING, Status.CANCELLED, Status.TERMINATED) and code and code not in _EXPECTED:
        kind = NoticeKind.FAILED if reason_of(code).fails else NoticeKind.ENDED
        _write(moved, NoticeKind.FINISHED if code == FINISHED else kind, now)


def tell_of_starts(session_ids: Collection[UUID], *, now: datetime) -> int:
    """Notify owners of pending sessions that will probably start within ``TELL_BEFORE``; returns how many. Each session
    once, and only if it has waited longer than that. Locks these sessions."""
    long_ago = now - TELL_BEFORE
    told = SessionNotice.objects.filter(session=OuterRef("pk"), kind=NoticeKind.STARTING)
    waited = Q(starts_at=None) | Q(starts_at__lt=long_ago)
    rows = ComputeSession.objects.pending().filter(waited, pk__in=among(session_ids), created_at__lt=long_ago)
    rows = rows.filter(run_id=None).exclude(session_type__in=SERVED).exclude(Exists(told))
    with transaction.atomic():
        columns = rows.order_by("pk").values_list("pk", "owner_id", "status", "version")
        due = list(columns.select_for_update(no_key=True)[:_MOST_AT_ONCE])
        _write([Moved(pk, owner) for pk, owner, _, _ in due], NoticeKind.STARTING, now)
        publish_on_commit(SessionEvent(str(pk), str(owner), status, version) for pk, owner, status, version in due)
    return len(due)


def warn_owners(messages: Mapping[UUID, str], due_at: datetime, *, now: datetime) -> None:
    """Notify owners when and why these sessions will end, in the caller's transaction; replaces an earlier warning."""
    rows = ComputeSession.objects.filter(pk__in=among(list(messages))).order_by().values_list("pk", "owner_id")
    announce([(pk, owner, messages[pk], due_at) for pk, owner in rows], now)


def withdraw_warnings(session_ids: Collection[UUID]) -> None:
    """Delete the notifications about the announced ends of these sessions."""
    SessionNotice.objects.filter(session__in=among(session_ids), kind=NoticeKind.ENDING).delete()


def withdraw_end_warning(session_id: UUID) -> None:
    """Delete the notification that the session nearly reaches its time limit, so that it can be sent again. A warning
    of a drain, which has a message, is kept."""
    SessionNotice.objects.filter(session=session_id, kind=NoticeKind.ENDING, message="").delete()


def update_idle_notices(session_ids: Collection[UUID], first: Mapping[UUID, AnnouncedEnd], *, now: datetime) -> None:
    """Make these sessions' idle notifications match ``first``, the first announced end by session, in the caller's
    transaction. Sessions missing from ``first`` lose their notification. Unchanged notifications are kept."""
    rows = SessionNotice.objects.filter(session__in=among(session_ids), kind=NoticeKind.IDLE)
    stored = {pk: (message, due_at) for pk, message, due_at in rows.values_list("session_id", "message", "due_at")}
    if over := [pk for pk in stored if pk not in first]:
        rows.filter(session__in=among(over)).delete()
    announce([one for pk, one in first.items() if stored.get(pk) != one[2:]], now, NoticeKind.IDLE)


def notify_of_closed_apps(closed: Mapping[UUID, tuple[UUID, str, datetime]], *, now: datetime) -> None:
    """Notify owners that public apps are private again, in the caller's transaction. ``closed``: owner, message and
    time by session."""
    announce([(pk, owner, message, at) for pk, (owner, message, at) in closed.items()], now, NoticeKind.APP_CLOSED)


def warn_of_ends(now: datetime) -> int:
    """Notify owners of running sessions that end soon; returns how many. Soon: within an hour, or half of the run time
    if that is shorter. Each end once, at most ``_MOST_AT_ONCE`` per call."""
    rows = ComputeSession.objects.running().filter(ends_at__gt=now, ends_at__lte=now + WARN_BEFORE)
    # A warning of another time is of an end that was moved while the warning was written. Drains' have messages.
    of_this_end = ~Q(message="") | Q(due_at=OuterRef("ends_at"))
    told = SessionNotice.objects.filter(of_this_end, session=OuterRef("pk"), kind=NoticeKind.ENDING)
    untold = rows.exclude(session_type__in=SERVED).exclude(Exists(told)).order_by("ends_at", "pk")
    columns = untold.values_list("pk", "owner_id", "started_at", "ends_at", "status", "version")
    due = [row for row in columns[:_MOST_AT_ONCE] if row[3] - now <= (row[3] - (row[2] or now)) / 2]
    if not due:
        return 0
    with transaction.atomic():
        announce([(pk, owner, "", ends_at) for pk, owner, _, ends_at, _, _ in due], now)
        publish_on_commit(
            SessionEvent(str(pk), str(owner), status, version) for pk, owner, _, _, status, version in due
        )
    return len(due)


def delete_old_notices(now: datetime) -> int:
    """Delete notifications that are too old, and all but the newest two hundred of each user; returns how many. Looks
    at the ``_MOST_AT_ONCE`` oldest and at twenty users per call."""
    oldest = SessionNotice.objects.order_by("pk").values_list("pk", "created_at")[:_MOST_AT_ONCE]
    old = [pk for pk, created_at in oldest if created_at < now - KEPT_FOR]
    number: int = SessionNotice.objects.filter(pk__in=old).delete()[0] if old else 0
    counts = SessionNotice.objects.order_by().values("owner").annotate(number=Count("pk"))
    for row in counts.filter(number__gt=MOST_KEPT + _SLACK)[:20]:
        own = SessionNotice.objects.filter(owner=row["owner"]).order_by("-pk")
        number += own.filter(pk__lte=own.values_list("pk", flat=True)[MOST_KEPT]).delete()[0]
    return number


def _notice(session_id: UUID, owner_id: UUID, kind: NoticeKind, now: datetime, **more: Any) -> SessionNotice:
    return SessionNotice(session_id=session_id, owner_id=owner_id, kind=kind, created_at=now, **more)


def _write(moved: Sequence[Moved], kind: NoticeKind, now: datetime) -> None:
    """Write notifications of this kind. Sessions that already have one keep it."""
    if not moved:
        return
    number = len(moved)
    columns: dict[str, tuple[str, Sequence[Any]]] = {
        "session_id": ("uuid", [each.session_id for each in moved]),
        "owner_id": ("uuid", [each.owner_id for each in moved]),
        "kind": ("text", [str(kind)] * number),
        "message": ("text", [""] * number),
        "created_at": ("timestamptz", [now] * number),
    }
    insert_from(SessionNotice._meta.db_table, columns, "DO NOTHING")


def announce(due: Iterable[AnnouncedEnd], now: datetime, kind: NoticeKind = NoticeKind.ENDING) -> None:
    """Notify owners of these ends, in the caller's transaction; replaces earlier notifications of this kind."""
    warnings = [
        _notice(pk, owner, kind, now, message=shortened(message), due_at=due_at) for pk, owner, message, due_at in due
    ]
    if not warnings:
        return
    SessionNotice.objects.bulk_create(
        warnings,
        update_conflicts=True,
        unique_fields=["session", "kind"],
        update_fields=["message", "due_at", "created_at", "seen_at", "closed_at", "cleared_at", "mailed_at"],
    )


def _time(value: datetime | str | None) -> datetime:
    moment = parse_datetime(value) if isinstance(value, str) else value
    if moment is None:
        raise ValueError(f"{value!r} is no time")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
