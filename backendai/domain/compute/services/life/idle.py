"""Writes the idle policy's warnings, withdrawals and ends. The number of statements does not grow with the
number of sessions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q

from backendai.base.core.messages import Message, shortened
from backendai.base.db.bulk import among, update_returning, update_rows
from backendai.domain.compute.models import ComputeSession, IdleWarning
from backendai.domain.compute.services.images.commits import being_saved
from backendai.domain.compute.services.life.ending import end_each
from backendai.domain.compute.services.life.home_retention import homes_being_kept
from backendai.domain.compute.services.life.stopping import stop_each
from backendai.domain.compute.services.notices.owners import AnnouncedEnd, update_idle_notices
from backendai.domain.compute.services.status.history import Entry, write_history
from backendai.domain.compute.services.status.moves import StatusCause, publish_changes
from backendai.domain.compute.status import TERMINAL, Outcome, Phase, Status
from backendai.scheduler.find_idle import Finding

WARNED, WITHDRAWN = "idle-warned", "idle-warning-withdrawn"
MOST_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class IdleCase:
    """A session that an idle checker finds idle. ``message``: the text of the warning. ``end_message``: the reason
    stored when the session ends. ``numbers``: values of the checker and the measurement, for scripts."""

    finding: Finding
    due_at: datetime
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
        held = lock_running([one.finding.session for one in some])
        some = [one for one in some if one.finding.session in held]
        rows = [_warning(one, now) for one in some]
        written = ["checker_name", "kind", "sign", "lead", "warned_at", "due_at", "idle_since", "measured", "message"]
        IdleWarning.objects.bulk_create(
            rows, update_conflicts=True, unique_fields=["session", "checker"], update_fields=written
        )
        note_idle({one.finding.session: one.message for one in some}, WARNED, Outcome.SUCCESS, now)
        update_notices(held, now)
    return len(some)


def _warning(one: IdleCase, now: datetime) -> IdleWarning:
    rule = one.finding.rule
    return IdleWarning(
        session_id=one.finding.session, checker_id=rule.id, checker_name=rule.name, kind=rule.kind.name, sign=rule.sign,
        lead=rule.lead, warned_at=now, due_at=one.due_at, idle_since=one.finding.since,
        measured=dict(one.measured), message=shortened(one.message),
    )  # fmt: skip


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


def stop_idle(cases: Sequence[IdleCase], *, now: datetime) -> set[UUID]:
    """Begin to stop sessions whose announced end has come, and that were not extended meanwhile; returns the ids of all
    that can be stopped, now or by the next pass."""
    first: dict[UUID, IdleCase] = {}
    for one in sorted(cases, key=lambda case: (case.due_at, case.finding.rule.id)):
        first.setdefault(one.finding.session, one)

    def cause(pk: UUID) -> StatusCause | None:
        lock_running([pk])
        for warning, warned_at in _active_warnings({pk: first[pk]}, now).values():
            IdleWarning.objects.filter(pk=warning).update(collected_at=now)
            return _why(first[pk], warned_at)
        return None

    return stop_each(list(first), cause, now=now)


def collect_idle(cases: Sequence[IdleCase], *, now: datetime) -> set[UUID]:
    """End sessions whose announced end has come; returns the ids of the ended ones. At most ``MOST_AT_ONCE`` cases, the
    earliest first. Sessions that were extended meanwhile, or are being saved or copied, continue."""
    first: dict[UUID, IdleCase] = {}
    for one in sorted(cases, key=lambda case: (case.due_at, case.finding.rule.id))[:MOST_AT_ONCE]:
        first.setdefault(one.finding.session, one)
    if not first:
        return set()
    with transaction.atomic():
        held = lock_running(list(first))
        held -= being_saved(held) | homes_being_kept(held)  # they may end when that is finished
        warned = _active_warnings({pk: one for pk, one in first.items() if pk in held}, now)
        groups: dict[str, dict[UUID, StatusCause]] = defaultdict(dict)
        for pk, (_, warned_at) in warned.items():
            groups[first[pk].finding.rule.kind.reason][pk] = _why(first[pk], warned_at)
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


def lock_running(session_ids: Collection[UUID]) -> set[UUID]:
    """Lock the running ones among these sessions, and return their ids. The lock keeps the history from saying RUNNING
    after a session's end."""
    rows = ComputeSession.objects.running().filter(pk__in=among(session_ids))
    found = update_returning(rows, {"version": F("version") + 1}, ("id",)) if session_ids else []
    return {pk if isinstance(pk, UUID) else UUID(pk) for (pk,) in found}


def _active_warnings(sessions: Mapping[UUID, IdleCase], now: datetime) -> dict[UUID, tuple[UUID, datetime]]:
    """Return by session the warning that ends it now, as the warning's id and time. The warnings are locked until the
    transaction ends."""
    signs = {(pk, one.finding.rule.id, one.finding.rule.sign) for pk, one in sessions.items()}
    rows = IdleWarning.objects.filter(session__in=among(list(sessions)), collected_at=None, due_at__lte=now)
    columns = ("pk", "session_id", "checker_id", "sign", "warned_at")
    held = rows.order_by("pk").select_for_update(no_key=True).values_list(*columns)
    return {
        session_id: (pk, warned_at)
        for pk, session_id, checker_id, sign, warned_at in held
        if warned_at is not None and (session_id, checker_id, sign) in signs
    }


def _why(one: IdleCase, warned_at: datetime) -> StatusCause:
    numbers = {"checker": one.finding.rule.name, "warned_at": warned_at.isoformat(), "due_at": one.due_at.isoformat()}
    reason = one.finding.rule.kind.reason
    return StatusCause(Phase.RUN, reason, one.end_message, numbers | dict(one.numbers), outcome=Outcome.EXPIRED)


def note_idle(messages: Mapping[UUID, str], code: str, outcome: Outcome, now: datetime) -> None:
    """Write these messages into the histories of running sessions."""
    entries = [Entry(pk, Status.RUNNING, outcome, code, message) for pk, message in messages.items()]
    write_history(entries, Phase.RUN, Status.RUNNING, now=now)


def update_notices(session_ids: Collection[UUID], now: datetime) -> None:
    """Make the owners' notifications show the first active warning of each session."""
    rows = IdleWarning.objects.filter(session__in=among(list(session_ids)), warned_at__isnull=False, collected_at=None)
    columns = ("session_id", "session__owner_id", "message", "due_at")
    first: dict[UUID, AnnouncedEnd] = {}
    for row in rows.filter(due_at__isnull=False).order_by("due_at", "pk").values_list(*columns):
        first.setdefault(row[0], row)
    update_idle_notices(session_ids, first, now=now)
    publish_changes(session_ids)
