"""Writes the idle policy's warnings, withdrawals, extensions and ends. The number of statements does not grow with the
number of sessions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q

from backendai.base.core.errors import Conflict, NotFound
from backendai.base.core.messages import Message, shortened
from backendai.base.db.bulk import among, update_returning, update_rows
from backendai.domain.accounts.acting import both_names
from backendai.domain.accounts.models import User
from backendai.domain.activity.services import audit
from backendai.domain.compute.models import ComputeSession, IdleWarning
from backendai.domain.compute.services.images.commits import being_saved
from backendai.domain.compute.services.life.ending import end_each
from backendai.domain.compute.services.life.home_retention import homes_being_kept
from backendai.domain.compute.services.notices.owners import IdleNotice, update_idle_notices
from backendai.domain.compute.services.status.history import Entry, write_history
from backendai.domain.compute.services.status.moves import StatusCause, publish_changes
from backendai.domain.compute.status import TERMINAL, Outcome, Phase, Status

WARNED, WITHDRAWN, EXTENDED = "idle-warned", "idle-warning-withdrawn", "idle-extended"
CODES = {
    "session-lifetime": "idle-session-lifetime",
    "network-timeout": "idle-timeout",
    "utilization": "idle-utilization",
}
MOST_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class IdleCase:
    """A session that an idle checker finds idle. ``message``: the text of the warning. ``end_message``: the reason
    stored when the session ends. ``numbers``: values of the checker and the measurement, for scripts."""

    session_id: UUID
    checker_id: int
    checker_name: str
    kind: str
    sign: str
    lead: timedelta
    due_at: datetime
    idle_since: datetime | None
    message: str
    end_message: str
    measured: Mapping[str, float] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)


def warn_idle(cases: Sequence[IdleCase], *, now: datetime) -> int:
    """Write these warnings with notifications and history rows; returns how many. At most ``MOST_AT_ONCE``, the first
    ones. An earlier warning by the same checker is replaced, but its number of extensions is kept."""
    some = list(cases[:MOST_AT_ONCE])
    if not some:
        return 0
    with transaction.atomic():
        held = lock_running([one.session_id for one in some])
        some = [one for one in some if one.session_id in held]
        rows = [
            IdleWarning(
                session_id=one.session_id, checker_id=one.checker_id, checker_name=one.checker_name, kind=one.kind,
                sign=one.sign, lead=one.lead, warned_at=now, due_at=one.due_at, idle_since=one.idle_since,
                measured=dict(one.measured), message=shortened(one.message),
            )
            for one in some
        ]  # fmt: skip
        written = ["checker_name", "kind", "sign", "lead", "warned_at", "due_at", "idle_since", "measured", "message"]
        IdleWarning.objects.bulk_create(
            rows, update_conflicts=True, unique_fields=["session", "checker"], update_fields=written
        )
        note_idle({one.session_id: one.message for one in some}, WARNED, Outcome.SUCCESS, now)
        update_notices(held, now)
    return len(some)


def postpone(due: Mapping[UUID, datetime]) -> None:
    """Store new announced ends of warned sessions. ``due``: the new end by warning id."""
    update_rows(IdleWarning._meta.db_table, list(due), {"due_at": ("timestamptz", list(due.values()))})


def withdraw(warning_ids: Collection[UUID], *, now: datetime) -> int:
    """Withdraw warnings whose cause no longer exists, at most ``MOST_AT_ONCE``, and inform the owners; returns how
    many."""
    ids = list(warning_ids)[:MOST_AT_ONCE]
    if not ids:
        return 0
    with transaction.atomic():
        rows = IdleWarning.objects.filter(pk__in=among(ids), collected_at=None)
        held = lock_running(list(rows.values_list("session_id", flat=True)))
        rows = rows.filter(session__in=among(list(held)))
        stood = dict(rows.filter(warned_at__isnull=False).values_list("session_id", "checker_name"))
        rows.filter(Q(extensions=0) | Q(checker=None)).delete()
        rows.update(warned_at=None, due_at=None, message="", measured={})
        withdrawn = {
            pk: Message("The warning by idle checker {name} is withdrawn.", name=name) for pk, name in stood.items()
        }
        note_idle(withdrawn, WITHDRAWN, Outcome.SKIPPED, now)
        update_notices(list(stood), now)
    return len(stood)


def collect_idle(cases: Sequence[IdleCase], *, now: datetime) -> set[UUID]:
    """End sessions whose announced end has come; returns the ids of the ended ones. At most ``MOST_AT_ONCE`` cases, the
    earliest first. Sessions that were extended meanwhile, or are being saved or copied, continue."""
    first: dict[UUID, IdleCase] = {}
    for one in sorted(cases, key=lambda case: (case.due_at, case.checker_id))[:MOST_AT_ONCE]:
        first.setdefault(one.session_id, one)
    if not first:
        return set()
    with transaction.atomic():
        held = lock_running(list(first))
        held -= being_saved(held) | homes_being_kept(held)  # they may end when that is finished
        warned = _active_warnings({pk: one for pk, one in first.items() if pk in held}, now)
        groups: dict[str, dict[UUID, StatusCause]] = defaultdict(dict)
        for pk, (_, warned_at) in warned.items():
            groups[CODES[first[pk].kind]][pk] = _why(first[pk], warned_at)
        ended: set[UUID] = set()
        for code in sorted(groups):
            ended |= end_each(groups[code], only_from=[Status.RUNNING], now=now).terminating
        collected = [warned[pk][0] for pk in ended]
        IdleWarning.objects.filter(pk__in=among(collected)).update(collected_at=now)
    return ended


def delete_stale_idle() -> int:
    """Delete warnings of sessions that ended for other reasons; returns how many. Warnings that led to an idle end are
    kept as evidence."""
    rows = IdleWarning.objects.filter(collected_at=None, session__status__in=TERMINAL)
    number: int = rows.delete()[0]
    return number


def extend_idle(session: ComputeSession, user: User, checker_id: int, *, now: datetime) -> datetime:
    """Extend a warned session's end by the checker's extension; returns the new end.

    Raises NotFound if the checker has no active warning; Conflict if no extension is left or the session is not
    running.
    """
    with transaction.atomic():
        if not lock_running([session.pk]):
            raise Conflict("The session is no longer running.", code="not-running")
        rows = IdleWarning.objects.select_related("checker").select_for_update(of=("self",))
        warning = rows.filter(session=session, checker=checker_id, collected_at=None).first()
        if warning is None or warning.checker is None or warning.warned_at is None or warning.due_at is None:
            raise NotFound("This idle checker has no active warning.", code="no-idle-warning")
        checker = warning.checker
        if warning.extensions >= checker.max_extensions:
            times = checker.max_extensions
            text = Message(
                "Idle checker {checker} allows {times} extensions, and all are used.",
                times=times,
                checker=checker.name,
            )
            text = text if times else Message("Idle checker {checker} allows no extension.", checker=checker.name)
            raise Conflict(text, code="no-more-extensions", limit=times)
        until: datetime = max(warning.due_at, now) + checker.extension
        number = warning.extensions + 1
        IdleWarning.objects.filter(pk=warning.pk).update(
            extended_until=until, extensions=number, warned_at=None, due_at=None, message="", measured={}
        )
        message = extension_message(user, until, checker.name)
        note_idle({session.pk: message}, EXTENDED, Outcome.SUCCESS, now)
        names = {} if session.owner_id == user.pk else both_names(user, session.owner)
        details = {"name": session.name, "checker": checker.name, "until": until.isoformat(), "number": number}
        audit(user.pk, "session.extend-idle", "session", [session.pk], **details, **names)
        update_notices([session.pk], now)
    return until


def lock_running(session_ids: Collection[UUID]) -> set[UUID]:
    """Lock the running ones among these sessions, and return their ids. The lock keeps the history from saying RUNNING
    after a session's end."""
    rows = ComputeSession.objects.running().filter(pk__in=among(session_ids))
    found = update_returning(rows, {"version": F("version") + 1}, ("id",)) if session_ids else []
    return {pk if isinstance(pk, UUID) else UUID(pk) for (pk,) in found}


def _active_warnings(sessions: Mapping[UUID, IdleCase], now: datetime) -> dict[UUID, tuple[UUID, datetime]]:
    """Return by session the warning that ends it now, as the warning's id and time. The warnings are locked until the
    transaction ends."""
    rows = IdleWarning.objects.filter(session__in=among(list(sessions)), collected_at=None, due_at__lte=now)
    held = rows.order_by("pk").select_for_update(no_key=True)
    return {
        session_id: (pk, warned_at)
        for pk, session_id, checker_id, sign, warned_at in held.values_list(
            "pk", "session_id", "checker_id", "sign", "warned_at"
        )
        if warned_at is not None and (checker_id, sign) == (sessions[session_id].checker_id, sessions[session_id].sign)
    }


def _why(one: IdleCase, warned_at: datetime) -> StatusCause:
    numbers = {"checker": one.checker_name, "warned_at": warned_at.isoformat(), "due_at": one.due_at.isoformat()}
    return StatusCause(
        Phase.RUN, CODES[one.kind], one.end_message, numbers | dict(one.numbers), outcome=Outcome.EXPIRED
    )


def extension_message(user: User, until: datetime, checker: str) -> str:
    """Return the message about an extended end, for the history."""
    return Message(
        "{user} lets it run until {until} UTC at least (idle checker {checker}).",
        user=user.email,
        until=f"{until:%Y-%m-%d %H:%M}",
        checker=checker,
    )


def note_idle(messages: Mapping[UUID, str], code: str, outcome: Outcome, now: datetime) -> None:
    """Write these messages into the histories of running sessions."""
    entries = [Entry(pk, Status.RUNNING, outcome, code, message) for pk, message in messages.items()]
    write_history(entries, Phase.RUN, Status.RUNNING, now=now)


def update_notices(session_ids: Collection[UUID], now: datetime) -> None:
    """Make the owners' notifications show the first active warning of each session."""
    rows = IdleWarning.objects.filter(session__in=among(list(session_ids)), warned_at__isnull=False, collected_at=None)
    first: dict[UUID, IdleNotice] = {}
    columns = rows.order_by("due_at", "pk").values_list("session_id", "session__owner_id", "message", "due_at")
    for pk, owner_id, message, due_at in columns:
        if due_at is not None:
            first.setdefault(pk, IdleNotice(owner_id, message, due_at))
    update_idle_notices(session_ids, first, now=now)
    publish_changes(session_ids)
