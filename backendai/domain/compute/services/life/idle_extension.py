"""Extends the ends of many idle sessions at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.db.bulk import among
from backendai.domain.accounts.acting import both_names
from backendai.domain.accounts.models import User
from backendai.domain.activity.services import audit_each
from backendai.domain.compute.models import ComputeSession, IdleWarning
from backendai.domain.compute.services.life.idle import (
    EXTENDED,
    extension_message,
    lock_running,
    note_idle,
    update_notices,
)
from backendai.domain.compute.status import Outcome

MOST_KEPT = 100


@dataclass(frozen=True, slots=True)
class Extended:
    """The sessions with their new ends, and the names of sessions that have no extension left."""

    until: Mapping[UUID, datetime]
    refused: Sequence[str]


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
        for pk, warnings in _active_warnings(user, session_ids).items():
            ends = [_put_off(one, now) for one in warnings]
            if None in ends:
                refused.append(warnings[0].session.name)
                continue
            until[pk] = max(end for end in ends if end)
            kept += warnings
        written = ["extended_until", "extensions", "warned_at", "due_at", "message", "measured"]
        if kept:
            IdleWarning.objects.bulk_update(kept, written)
            _tell(user, kept, until, now)
    return Extended(until, refused)


def _active_warnings(user: User, session_ids: Collection[UUID]) -> dict[UUID, list[IdleWarning]]:
    """Return the active warnings by session. Sessions and warnings are locked until the transaction ends."""
    visible = ComputeSession.objects.visible_to(user).filter(pk__in=among(list(session_ids)))
    held = lock_running(list(visible.values_list("pk", flat=True)))
    rows = IdleWarning.objects.select_related("checker", "session__owner").select_for_update(of=("self",))
    rows = rows.filter(session__in=among(list(held)), collected_at=None, warned_at__isnull=False, due_at__isnull=False)
    found: dict[UUID, list[IdleWarning]] = defaultdict(list)
    for warning in rows.filter(checker__isnull=False).order_by("session__name", "pk"):
        found[warning.session_id].append(warning)
    return found


def _put_off(warning: IdleWarning, now: datetime) -> datetime | None:
    """Extend the end in the warning object without saving it, and return the new end; None if no extension is left."""
    checker = warning.checker
    if checker is None or warning.extensions >= checker.max_extensions:
        return None
    until: datetime = max(warning.due_at or now, now) + checker.extension
    warning.extended_until, warning.extensions = until, warning.extensions + 1
    warning.warned_at, warning.due_at, warning.message, warning.measured = None, None, "", {}
    return until


def _tell(user: User, kept: Sequence[IdleWarning], until: Mapping[UUID, datetime], now: datetime) -> None:
    names: dict[UUID, list[str]] = defaultdict(list)
    for one in kept:
        names[one.session_id].append(one.checker_name)
    messages = {pk: extension_message(user, until[pk], ", ".join(of)) for pk, of in names.items()}
    details: dict[UUID, dict[str, object]] = {}
    for one in kept:
        session, pk = one.session, one.session_id
        both = {} if session.owner_id == user.pk else both_names(user, session.owner)
        facts = {"checker": ", ".join(names[pk]), "until": until[pk].isoformat(), "number": one.extensions}
        details[pk] = {"name": session.name, **facts, **both}
    note_idle(messages, EXTENDED, Outcome.SUCCESS, now)
    audit_each(user.pk, "session.extend-idle", "session", details)
    update_notices(list(messages), now)
