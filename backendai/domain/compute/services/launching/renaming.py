"""Renames sessions."""

from __future__ import annotations

from django.db import IntegrityError, transaction
from django.db.models import F

from backendai.base.core.errors import Conflict
from backendai.base.core.messages import Message
from backendai.base.core.names import check_session_name
from backendai.base.wire.browser import SessionEvent, publish_on_commit
from backendai.domain.accounts.acting import both_names
from backendai.domain.accounts.models import User
from backendai.domain.activity.services import audit
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.status import LIVE, Status

# While an agent prepares a session, programs might get the old or the new name.
_BEING_PREPARED = frozenset({Status.PULLING, Status.CREATING})


def may_be_renamed(session: ComputeSession) -> bool:
    """Return whether the session can be renamed now."""
    return session.status in LIVE - _BEING_PREPARED


def rename_session(session: ComputeSession, user: User, name: str) -> ComputeSession:
    """Rename a session and return it. Programs that are running keep the old name. The caller checks that the user may
    see the session.

    Raises UserError for an invalid name; Conflict if the session has ended or is being prepared, or if another live
    session of the owner has the name (the error's ``session`` is the id of the other one).
    """
    check_session_name(name)
    if name == session.name:
        return session
    try:
        with transaction.atomic():
            live = ComputeSession.objects.filter(pk=session.pk, status__in=LIVE - _BEING_PREPARED)
            if not live.update(name=name, version=F("version") + 1):
                raise _too_late(session)
            names = both_names(user, session.owner)
            audit(user.pk, "session.rename", "session", [session.pk], changes={"name": [session.name, name]}, **names)
            renamed: ComputeSession = ComputeSession.objects.get(pk=session.pk)
            publish_on_commit([SessionEvent(str(renamed.pk), str(renamed.owner_id), renamed.status, renamed.version)])
    except IntegrityError as error:
        raise _taken(session, name) from error
    return renamed


def _too_late(session: ComputeSession) -> Conflict:
    session.refresh_from_db(fields=["status"])
    if session.status in _BEING_PREPARED:
        return Conflict("The session is being prepared: rename it when it runs.", code="being-prepared")
    return Conflict("The session has ended: it can no longer be renamed.", code="already-ended")


def _taken(session: ComputeSession, name: str) -> Conflict:
    rows = ComputeSession.objects.filter(owner=session.owner_id, name=name, status__in=LIVE)
    other = rows.exclude(pk=session.pk).first()
    which = (
        Message(
            " ({status}, launched {created_at} UTC)",
            status=other.get_status_display(),
            created_at=f"{other.created_at:%Y-%m-%d %H:%M}",
        )
        if other
        else ""
    )
    return Conflict(
        "Another live session of this owner has the name {name}{which}; choose another one.",
        name=repr(name),
        which=which,
        field="name",
        code="name-taken",
        session=str(other.pk) if other else "",
    )
