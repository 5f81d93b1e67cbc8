"""Extends the ends of idle sessions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from backendai.base.core.errors import Conflict, NotFound, UserError
from backendai.base.core.messages import Message
from backendai.base.db.bulk import among
from backendai.domain.accounts.acting import both_names
from backendai.domain.accounts.models import User
from backendai.domain.activity.services import audit_each
from backendai.domain.compute.models import ComputeSession, IdleWarning
from backendai.domain.compute.services.life.idle import lock_running, note_idle, update_notices
from backendai.domain.compute.status import Outcome

EXTENDED = "idle-extended"
MOST_KEPT = 100


@dataclass(frozen=True, slots=True)
class Extended:
    """The sessions with their new ends, and the names of sessions that have no extension left."""

    until: Mapping[UUID, datetime]
    refused: Sequence[str]


def extend_idle(session: ComputeSession, user: User, checker_id: int, *, now: datetime) -> datetime:
    """Extend a warned session's end by the checker's extension; returns the new end.

    Raises NotFound if the checker has no active warning; Conflict if no extension is left or the session is not
    running.
    """
    with transaction.atomic():
        if not lock_running([session.pk]):
            raise Conflict("The session is no longer running.", code="not-running")
        warning = _active_warnings([session.pk]).filter(checker=checker_id).first()
        if warning is None:
            raise NotFound("This idle checker has no active warning.", code="no-idle-warning")
        until = _put_off(warning, now)
        if until is None:
            name, times = warning.checker_name, warning.checker.max_extensions if warning.checker else 0
            text = Message("Idle checker {checker} allows no extension.", checker=name)
            if times:
                text = Message(
                    "Idle checker {checker} allows {times} extensions, and all are used.", checker=name, times=times
                )
            raise Conflict(text, code="no-more-extensions", limit=times)
        _write(user, [warning], {session.pk: until}, now)
    return until


def keep_running(user: User, session_ids: Collection[UUID], *, now: datetime) -> Extended:
    """Extend the end of each active warning of these sessions; returns the new ends. A fixed number of statements.
    Sessions that the user may not see, or without a warning, are skipped. Raises UserError for more than
    ``MOST_KEPT``."""
    if len(session_ids) > MOST_KEPT:
        text = Message(
            "{number} sessions named, but at most {most_kept} can be extended at once.",
            number=len(session_ids),
            most_kept=MOST_KEPT,
        )
        raise UserError(text, field="sessions", code="too-many-sessions", limit=MOST_KEPT)
    until: dict[UUID, datetime] = {}
    refused: list[str] = []
    with transaction.atomic():
        kept: list[IdleWarning] = []
        visible = ComputeSession.objects.visible_to(user).filter(pk__in=among(list(session_ids)))
        held = lock_running(list(visible.values_list("pk", flat=True)))
        by_session: dict[UUID, list[IdleWarning]] = defaultdict(list)
        for warning in _active_warnings(held).order_by("session__name", "pk"):
            by_session[warning.session_id].append(warning)
        for pk, warnings in by_session.items():
            ends = [_put_off(one, now) for one in warnings]
            if None in ends:
                refused.append(warnings[0].session.name)
                continue
            until[pk] = max(end for end in ends if end)
            kept += warnings
        if kept:
            _write(user, kept, until, now)
    return Extended(until, refused)


def _active_warnings(session_ids: Collection[UUID]) -> QuerySet[IdleWarning]:
    """Return the active warnings of these sessions, locked until the transaction ends."""
    rows = IdleWarning.objects.select_related("checker", "session__owner").select_for_update(of=("self",))
    rows = rows.filter(session__in=among(list(session_ids)), collected_at=None, checker__isnull=False)
    return rows.filter(warned_at__isnull=False, due_at__isnull=False)


def _put_off(warning: IdleWarning, now: datetime) -> datetime | None:
    """Extend the end in the warning object without saving it, and return the new end; None if no extension is left."""
    checker = warning.checker
    if checker is None or warning.extensions >= checker.max_extensions:
        return None
    until: datetime = max(warning.due_at or now, now) + checker.extension
    warning.extended_until, warning.extensions = until, warning.extensions + 1
    warning.warned_at, warning.due_at, warning.message, warning.measured = None, None, "", {}
    return until


def _write(user: User, kept: Sequence[IdleWarning], until: Mapping[UUID, datetime], now: datetime) -> None:
    written = ["extended_until", "extensions", "warned_at", "due_at", "message", "measured"]
    IdleWarning.objects.bulk_update(kept, written)
    names: dict[UUID, list[str]] = defaultdict(list)
    for one in kept:
        names[one.session_id].append(one.checker_name)
    messages = {pk: _message(user, until[pk], ", ".join(of)) for pk, of in names.items()}
    details: dict[UUID, dict[str, object]] = {}
    for one in kept:
        session, pk = one.session, one.session_id
        both = {} if session.owner_id == user.pk else both_names(user, session.owner)
        facts = {"checker": ", ".join(names[pk]), "until": until[pk].isoformat(), "number": one.extensions}
        details[pk] = {"name": session.name, **facts, **both}
    note_idle(messages, EXTENDED, Outcome.SUCCESS, now)
    audit_each(user.pk, "session.extend-idle", "session", details)
    update_notices(list(messages), now)


def _message(user: User, until: datetime, checkers: str) -> Message:
    return Message(
        "{user} lets it run until {until} UTC at least (idle checker {checker}).",
        user=user.email,
        until=f"{until:%Y-%m-%d %H:%M}",
        checker=checkers,
    )
