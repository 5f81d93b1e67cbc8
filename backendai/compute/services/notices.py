"""Telling owners what becomes of their sessions. What they are told of a move is written in its transaction; who wants
to see which of it, and where, is decided when it is shown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import Count
from django.utils.dateparse import parse_datetime

from backendai.activity.notices import NoticeKind
from backendai.compute.models import ComputeSession
from backendai.compute.notice_models import SessionNotice
from backendai.compute.reasons import reason_of
from backendai.compute.services.bulk import among, insert_new
from backendai.compute.status import Status
from backendai.core.messages import shortened
from backendai.wire.browser import SessionEvent, publish_on_commit

LONG_WAIT = timedelta(minutes=1)  # who waits for less looks on
WARN_BEFORE = timedelta(hours=1)
KEPT_FOR = timedelta(days=30)
MOST_KEPT = 200  # of one person
_SLACK = 50
_MOST_AT_ONCE = 500

# Ends that the owner asked for, or that are the good end of the work: no news.
_EXPECTED = frozenset({"user-requested", "self-terminated", "task-finished", "replica-ended"})


class Moved(NamedTuple):
    """A session that has just moved, with the columns of ``told_with`` (on SQLite as the database has them)."""

    session_id: UUID
    owner_id: UUID
    created_at: datetime | str | None = None


class IdleNotice(NamedTuple):
    """That a session is idle, and when it ends of it."""

    owner_id: UUID
    message: str
    due_at: datetime


def note_launch(session: ComputeSession) -> None:
    """Tell the owner of a new session, in the caller's transaction. It is no news under the bell: they launched it."""
    now = session.created_at
    SessionNotice.objects.bulk_create([_notice(session.pk, session.owner_id, NoticeKind.LAUNCHED, now, seen_at=now)])


def told_with(to: Status) -> tuple[str, ...]:
    """Return which more columns of a session ``note_moves`` must know of a move to ``to``."""
    return ("created_at",) if to == Status.RUNNING else ()


def note_moves(moved: Sequence[Moved], to: Status, code: str, now: datetime) -> None:
    """Tell the owners of sessions that moved to ``to`` for the reason ``code``, in the caller's transaction: of a start
    after a wait, of a failure, of an end that they did not ask for."""
    if to == Status.RUNNING:
        _write([each for each in moved if now - _time(each.created_at) > LONG_WAIT], NoticeKind.STARTED, now)
    elif to in (Status.TERMINATING, Status.CANCELLED) and code and code not in _EXPECTED:
        _write(moved, NoticeKind.FAILED if reason_of(code).fails else NoticeKind.ENDED, now)


def warn_owners(messages: Mapping[UUID, str], due_at: datetime, *, now: datetime) -> None:
    """Tell the owners of these sessions when they will end and why, in the caller's transaction; a later warning takes
    the place of an earlier one."""
    rows = ComputeSession.objects.filter(pk__in=among(list(messages))).order_by().values_list("pk", "owner_id")
    _warn([(pk, owner, messages[pk], due_at) for pk, owner in rows], now)


def withdraw_warnings(session_ids: Collection[UUID]) -> None:
    """Take back what ``warn_owners`` has told of these sessions: they do not end then after all."""
    SessionNotice.objects.filter(session__in=among(session_ids), kind=NoticeKind.ENDING).delete()


def tell_of_idleness(session_ids: Collection[UUID], first: Mapping[UUID, IdleNotice], *, now: datetime) -> None:
    """Tell the owners of these sessions of the first end that a warning of idleness announces, in the caller's
    transaction; what is told of those that are not in ``first`` is taken back. What is told already is no news."""
    rows = SessionNotice.objects.filter(session__in=among(session_ids), kind=NoticeKind.IDLE)
    told = {pk: (message, due_at) for pk, message, due_at in rows.values_list("session_id", "message", "due_at")}
    if over := [pk for pk in told if pk not in first]:
        rows.filter(session__in=among(over)).delete()
    news = [(pk, one) for pk, one in first.items() if told.get(pk) != (one.message, one.due_at)]
    _warn([(pk, one.owner_id, one.message, one.due_at) for pk, one in news], now, NoticeKind.IDLE)


def tell_of_closed_apps(closed: Mapping[UUID, tuple[UUID, str, datetime]], *, now: datetime) -> None:
    """Tell the owners of these sessions which apps are private again, in the caller's transaction. Each session comes
    with its owner, the sentence and the moment."""
    _warn([(pk, owner, message, at) for pk, (owner, message, at) in closed.items()], now, NoticeKind.APP_CLOSED)


def warn_of_ends(now: datetime) -> int:
    """Tell the owners of running sessions whose time is up within the hour, or within the half of it if they may run
    for less than two; each once. Returns how many."""
    rows = ComputeSession.objects.running().filter(ends_at__gt=now, ends_at__lte=now + WARN_BEFORE)
    untold = rows.exclude(notices__kind=NoticeKind.ENDING).order_by("ends_at", "pk")
    columns = untold.values_list("pk", "owner_id", "started_at", "ends_at", "status", "version")
    due = [row for row in columns[:_MOST_AT_ONCE] if row[3] - now <= (row[3] - (row[2] or now)) / 2]
    if not due:
        return 0
    with transaction.atomic():
        _warn([(pk, owner, "", ends_at) for pk, owner, _, ends_at, _, _ in due], now)
        publish_on_commit(
            SessionEvent(str(pk), str(owner), status, version) for pk, owner, _, _, status, version in due
        )
    return len(due)


def see_notices(user: Any, *, now: datetime) -> None:
    """Note that the user has seen their notices under the bell."""
    SessionNotice.objects.in_bell_of(user).unseen().update(seen_at=now)


def clear_notices(user: Any, *, now: datetime) -> int:
    """Put the user's notices out of their sight; returns how many."""
    return SessionNotice.objects.in_bell_of(user).update(cleared_at=now, seen_at=now)


def close_card(user: Any, *session_ids: UUID, now: datetime) -> int:
    """Note that the user has closed the cards of sessions: they come again only with further news. Returns how many
    notices that were."""
    open_ones = SessionNotice.objects.filter(owner=user, session__in=session_ids, closed_at=None)
    return open_ones.update(closed_at=now)


def close_cards(user: Any, until: int, *, now: datetime) -> int:
    """Close all of the user's cards up to the notice ``until``, the newest that the user has seen; returns how many
    notices that were."""
    return SessionNotice.objects.filter(owner=user, pk__lte=until, closed_at=None).update(closed_at=now)


def forget_notices(now: datetime) -> int:
    """Delete what was told long ago, and what one person has beyond the newest two hundred; returns how many."""
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
    """Write those that have not been written before: a second try of a start is no news."""
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
    insert_new(SessionNotice._meta.db_table, columns)


def _warn(due: Iterable[tuple[UUID, UUID, str, datetime]], now: datetime, kind: NoticeKind = NoticeKind.ENDING) -> None:
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
