"""Ends many sessions at once, with the reason for each that cannot be ended."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.domain.accounts.acting import both_names
from backendai.domain.accounts.models import User
from backendai.domain.activity.services import audit_each
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.images.commits import being_saved
from backendai.domain.compute.services.life.ending import Ended, end_sessions, end_stuck_kernels
from backendai.domain.compute.services.life.home_retention import homes_being_kept
from backendai.domain.compute.services.status.moves import StatusCause
from backendai.domain.compute.status import LIVE, Phase, Status

MOST_ENDED = 100


@dataclass(frozen=True, slots=True)
class Refusal:
    """A session that was not ended, and why. The name is empty if the user may not see a session with this id."""

    id: UUID
    name: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class EndedMany:
    """The ended sessions, and the sessions that could not be ended, in the order of the request."""

    ended: Ended
    refused: list[Refusal]


def terminate_sessions(user: User, ids: Collection[UUID], *, force: bool = False, now: datetime) -> EndedMany:
    """Terminate the live ones among these sessions that are visible to the user. ``force``: as in
    ``terminate_session``. A fixed number of statements. Raises UserError for more than ``MOST_ENDED`` sessions."""
    if len(ids) > MOST_ENDED:
        text = Message(
            "{number} sessions named, but at most {most_ended} can be ended at once.",
            number=len(ids),
            most_ended=MOST_ENDED,
        )
        raise UserError(text, field="sessions", code="too-many-sessions", limit=MOST_ENDED)
    with transaction.atomic():
        found = _visible(user, ids)
        saved = set() if force else being_saved(found) | homes_being_kept(found)
        asked = {pk: one for pk, one in found.items() if pk not in saved and not _why_not(one, force)}
        ended = _end(user, asked, force, now)
        forced = end_stuck_kernels(asked, user, now) if force and user.is_superadmin else set()
        touched = asked.keys() if force else ended.cancelled | ended.terminating
        _tell(user, {pk: asked[pk] for pk in touched}, force, forced)
    results = ((pk, _refusal(pk, found.get(pk), pk in touched, force, saved)) for pk in dict.fromkeys(ids))
    refused = [one for _, one in results if one]
    return EndedMany(Ended(ended.cancelled, ended.terminating, forced), refused)


def _visible(user: User, ids: Collection[UUID]) -> dict[UUID, ComputeSession]:
    rows = ComputeSession.objects.visible_to(user).filter(pk__in=ids).select_related("owner").order_by("pk")
    return {one.pk: one for one in rows.only("name", "status", "owner__email")}


def _end(user: User, asked: dict[UUID, ComputeSession], force: bool, now: datetime) -> Ended:
    cancelled: set[UUID] = set()
    terminating: set[UUID] = set()
    for code, is_own in (("user-requested", True), ("admin-requested", False)):
        ids = [pk for pk, one in asked.items() if (one.owner_id == user.pk) == is_own]
        if ids:
            why = StatusCause(Phase.TERMINATE, code, Message("Ended by {user}.", user=user.email))
            ended = end_sessions(ids, why, now=now, force=force)
            cancelled |= ended.cancelled
            terminating |= ended.terminating
    return Ended(cancelled, terminating, set())


def _tell(user: User, touched: dict[UUID, ComputeSession], force: bool, forced: set[UUID]) -> None:
    details = {
        pk: {"name": one.name, "force": force, "forced": pk in forced} | both_names(user, one.owner)
        for pk, one in touched.items()
    }
    audit_each(user.pk, "session.terminate", "session", details)


def _refusal(
    pk: UUID, session: ComputeSession | None, is_touched: bool, force: bool, saved: Collection[UUID]
) -> Refusal | None:
    if session is None:
        return Refusal(pk, "", "not-found", Message("Session not found."))
    if is_touched:
        return None
    if pk in saved:
        return Refusal(
            pk,
            session.name,
            "being-saved",
            Message("An image is being made of it, or its home is being kept. Wait for that, or use force."),
        )
    code, message = _why_not(session, force) or ("already-ended", Message("It has already ended."))
    return Refusal(pk, session.name, code, message)


def _why_not(session: ComputeSession, force: bool) -> tuple[str, str] | None:
    if session.status not in LIVE:
        return "already-ended", Message("It has already ended ({status}).", status=session.get_status_display())
    if session.status == Status.TERMINATING and not force:
        return "already-ending", Message("It is already terminating.")
    return None
