"""Moves the ends of running sessions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, OuterRef, QuerySet, Subquery

from backendai.base.core.errors import Conflict, NotAllowed, UserError
from backendai.base.core.messages import Message
from backendai.base.db.bulk import list_of, listed
from backendai.domain.accounts.acting import both_names
from backendai.domain.accounts.models import KeyPair, User
from backendai.domain.activity.services import audit
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.notices.owners import withdraw_end_warning
from backendai.domain.compute.services.status.history import Entry, write_history
from backendai.domain.compute.services.status.moves import publish_changes
from backendai.domain.compute.status import Outcome, Phase, Status

MOVED = "end-moved"
SOONEST = timedelta(minutes=1)  # an end closer than this could come before the answer is read
LATEST = timedelta(days=3650)  # the longest lifetime that a policy may have


def set_end(session: ComputeSession, actor: User, until: datetime | None, *, now: datetime) -> None:
    """Move the end of a running session; ``until`` None: no time limit. Idle checkers and drains still end it.

    Administrators may choose any time, the owner one within ``latest_end``. Raises NotAllowed for other users;
    UserError for a time outside the limits; Conflict if the session is not running.
    """
    if until is not None:
        until = _checked(until, now)
    with transaction.atomic():
        running = ComputeSession.objects.running().filter(pk=session.pk)
        rows = running.select_related("owner", "project").select_for_update(no_key=True, of=("self",))
        held: ComputeSession | None = rows.first()
        if held is None:
            raise Conflict("The session is not running, so its end cannot be moved.", code="not-running")
        if held.owner_id != actor.pk and not _administers(actor, held):
            raise NotAllowed("Only the owner of a session and administrators can move its end.")
        _check_latest(until, latest_end(held, actor))
        running.update(ends_at=until, is_end_moved=True, version=F("version") + 1)
        withdraw_end_warning(held.pk)
        _note(held, actor, until, now)
        publish_changes([held.pk])


def latest_end(session: ComputeSession, actor: User) -> datetime | None:
    """Return the latest end that the actor may choose for a running session; None: any, also no time limit. At most
    one query.

    The owner's policies count from the start. An end that an administrator has set later than that may stay.
    """
    if session.ends_at is None or session.started_at is None or _administers(actor, session):
        return None
    lifetime = longest_allowed([session.pk]).get(session.pk)
    return None if lifetime is None else max(session.ends_at, session.started_at + lifetime)


def _administers(user: User, session: ComputeSession) -> bool:
    is_domain_admin = user.role == User.Role.ADMIN and user.domain_id is not None
    return user.is_superadmin or (is_domain_admin and user.domain_id == session.project.domain_id)


def _checked(until: datetime, now: datetime) -> datetime:
    if not now + SOONEST <= until <= now + LATEST:
        raise UserError(
            "Choose an end at least {seconds} seconds and at most {days} days from now.",
            seconds=round(SOONEST.total_seconds()),
            days=LATEST.days,
            field="ends_at",
            code="invalid-end",
        )
    return until.astimezone(UTC)


def _check_latest(until: datetime | None, latest: datetime | None) -> None:
    if latest is not None and (until is None or until > latest):
        raise UserError(
            "The policies of the owner allow an end at {latest} at the latest; an administrator can move it further.",
            latest=_written(latest),
            field="ends_at",
            code="end-too-late",
            limit=latest.isoformat(),
        )


def _note(session: ComputeSession, actor: User, until: datetime | None, now: datetime) -> None:
    before = session.ends_at
    message = Message(
        "{user} moved the end from {before} to {until}.",
        user=actor.email,
        before=_written(before),
        until=_written(until),
    )
    entry = Entry(session.pk, Status.RUNNING, Outcome.SUCCESS, MOVED, message)
    write_history([entry], Phase.RUN, Status.RUNNING, now=now)
    changes = {"ends_at": [at.isoformat() if at else None for at in (before, until)]}
    names = both_names(actor, session.owner)
    audit(actor.pk, "session.set-end", "session", [session.pk], name=session.name, changes=changes, **names)


def _written(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC" if moment else Message("no limit")


_LIFETIMES = (
    "owner__policy__max_session_lifetime",
    "project__policy__max_session_lifetime",
    "project__domain__policy__max_session_lifetime",
    "key_pair_lifetime",
)


def longest_runs(session_ids: Collection[UUID]) -> dict[UUID, timedelta]:
    """Return the maximum run time of sessions, by session id; unlimited sessions are missing. At most one query."""
    return {pk: min(found) for pk, *limits in _read(session_ids) if (found := _set_ones(limits))}


def longest_allowed(session_ids: Collection[UUID]) -> dict[UUID, timedelta]:
    """Return the run time that the policies allow sessions now, by session id; unlimited sessions are missing. A batch
    session's own limit does not count. At most one query."""
    return {pk: min(found) for pk, _, *limits in _read(session_ids) if (found := _set_ones(limits))}


def _read(session_ids: Collection[UUID]) -> Iterable[Any]:
    return list(_limits_of(list_of(session_ids))) if session_ids else ()


def _set_ones(limits: Iterable[timedelta | None]) -> list[timedelta]:
    return [limit for limit in limits if limit is not None]


def _limits_of(sessions: str) -> QuerySet[Any, Any]:
    lifetime = KeyPair.objects.filter(access_key=OuterRef("access_key")).values("policy__max_session_lifetime")
    rows = ComputeSession.objects.filter(pk__in=listed(sessions)).annotate(key_pair_lifetime=Subquery(lifetime[:1]))
    return rows.order_by().values_list("pk", "batch_timeout", *_LIFETIMES)
