"""Shares live sessions with people and projects of their owners, and ends the sharing."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, QuerySet

from backendai.base.core.errors import Conflict, NotAllowed, NotFound, UserError
from backendai.base.core.messages import Message
from backendai.base.wire.browser import SessionEvent, publish_on_commit
from backendai.domain.accounts.models import Membership, Project, User
from backendai.domain.accounts.rules import clean_email
from backendai.domain.activity.access_notices import notify_of_access, withdraw_access
from backendai.domain.activity.services import audit
from backendai.domain.cluster.site import site_settings
from backendai.domain.compute.models import ComputeSession, SessionShare
from backendai.domain.compute.status import ShareRight

MOST_SHARES = 20
NOTED_EVERY = 3600.0
_MOST_NOTED = 10_000
_noted: dict[tuple[Any, ...], float] = {}


def people_to_share_with(owner: User) -> QuerySet[User]:
    """Return the active people of the owner's domain, without the owner. Of others the owner learns nothing."""
    people: QuerySet[User] = User.objects.filter(is_active=True, purged_at=None).exclude(pk=owner.pk)
    return people.filter(domain=owner.domain_id) if owner.domain_id else people.none()


def may_be_shared(session: ComputeSession) -> bool:
    """Return whether the session is live, and of a kind that can be shared."""
    return session.kind.is_launched and not session.is_terminal


def share_session(
    session: ComputeSession, actor: User, right: str, *, email: str = "", project: UUID | None = None, now: datetime
) -> SessionShare:
    """Return the share of the actor's own live session with a person of their domain, or with a project of theirs.

    Again it changes the right. Raises NotAllowed for sessions of others and if the site forbids it, NotFound for an
    unknown person or project, Conflict for the 21st share. Locks the session.
    """
    if session.owner_id != actor.pk:
        raise NotAllowed("Only its owner may share a session.", code="not-owner")
    if not site_settings().session_shares:
        raise NotAllowed("Sessions cannot be shared on this site. Ask an administrator.", code="no-session-shares")
    if right not in ShareRight.values:
        text = "{text} is not allowed: choose one of {values}."
        raise UserError(text, text=repr(right[:32]), values=ShareRight.values, field="right")
    with transaction.atomic():
        session = ComputeSession.objects.select_for_update().get(pk=session.pk)
        if not may_be_shared(session):
            raise Conflict("Only live interactive and batch sessions can be shared.", code="not-shareable")
        holder = _holder(actor, email, project)
        others = SessionShare.objects.filter(session=session).exclude(**holder)
        if others.count() >= MOST_SHARES:
            text = "A session is shared with at most {most} people and projects: stop sharing it with another one."
            raise Conflict(text, most=MOST_SHARES, code="too-many-shares")
        values = {"right": right}
        share: SessionShare
        share, is_new = SessionShare.objects.get_or_create(
            session=session, **holder, defaults=values | {"created_by": actor, "created_at": now}
        )
        if is_new or share.right != right:
            share.right = right
            share.save(update_fields=["right"])
            audit(actor.pk, "session.share", "session", [session.pk], right=right, **_named(share))
            _notify(actor, session, share, now)
            _show_again(session)
    return share


def unshare_session(session: ComputeSession, actor: User, share_id: int) -> SessionShare:
    """End a share of the actor's own session; what is open by it is closed within seconds. Raises NotFound."""
    shares = SessionShare.objects.select_related("user", "project")
    with transaction.atomic():
        found = shares.filter(session=session, session__owner=actor, pk=share_id).first()
        if found is None:
            raise NotFound("The session is not shared with them.", code="no-share")
        audit(actor.pk, "session.unshare", "session", [session.pk], **_named(found))
        SessionShare.objects.filter(pk=found.pk).delete()
        withdraw_access(("session", session.pk), _people_of(found))
        _show_again(session)
    return found


def shares_of(session: ComputeSession) -> list[SessionShare]:
    """Return with whom the session is shared, in order of time. One query."""
    return list(session.shares.select_related("user", "project", "used_by"))


def right_of(user: User, session: ComputeSession) -> ShareRight | None:
    """Return the right by which the user sees a session of somebody else; None for owners and administrators, whom no
    share limits. One query for owners of domains' and others' sessions, two for guests, none for the owner."""
    if session.owner_id == user.pk or ComputeSession.objects.visible_to(user).filter(pk=session.pk).exists():
        return None
    rights = set(SessionShare.objects.of(user).filter(session=session).values_list("right", flat=True))
    return ShareRight.USE if ShareRight.USE in rights else ShareRight.VIEW


def note_guest(user: User, session: ComputeSession, what: str, *, now: datetime) -> None:
    """Record in the audit log and on the share that a guest uses a session: once an hour for each use."""
    if session.owner_id == user.pk:
        return
    key, at = (user.pk, session.pk, what), time.monotonic()
    if at - _noted.get(key, -NOTED_EVERY) < NOTED_EVERY or not note_use_of_share(user, session.pk, now=now):
        return
    if len(_noted) >= _MOST_NOTED:
        _noted.clear()
    _noted[key] = at
    audit(user.pk, "session.use", "session", [session.pk], what=what, actor=user.email, owner=session.owner.email)


def note_use_of_share(user: User, session_id: UUID, *, now: datetime) -> int:
    """Note on the shares that let the user in who used them last; return how many there are."""
    held = list(SessionShare.objects.of(user).filter(session=session_id).values_list("pk", flat=True))
    return SessionShare.objects.filter(pk__in=held).update(used_by=user, used_at=now) if held else 0


def _holder(actor: User, email: str, project: UUID | None) -> dict[str, Any]:
    if bool(email) == (project is not None):
        raise UserError("Name a person or a project, not both.", field="email", code="whom")
    if project is not None:
        found = Project.objects.usable_by(actor).filter(pk=project).first()
        if found is None:
            raise NotFound("Project not found, or you are not a member.", field="project")
        return {"project": found, "user": None}
    user = people_to_share_with(actor).filter(email=clean_email(email)).first()
    if user is None:
        text = Message("No other account with this address in your domain.")
        raise NotFound(text, field="email", code="unknown-person")
    return {"user": user, "project": None}


def _people_of(share: SessionShare) -> Iterable[Any]:
    if share.user_id:
        return [share.user_id]
    members = Membership.objects.filter(project=share.project_id).exclude(user=share.created_by_id)
    return members.values_list("user_id", flat=True)


def _notify(actor: User, session: ComputeSession, share: SessionShare, now: datetime) -> None:
    text = Message(
        "{who} shares the session {name} with you: you can {right} it.",
        who=actor.email,
        name=session.name,
        right=Message(ShareRight(share.right).label),
    )
    notify_of_access(_people_of(share), ("session", session.pk), session.name, text, now=now)


def _named(share: SessionShare) -> dict[str, str]:
    return {"user": share.user.email} if share.user else {"project": str(share.project)}


def _show_again(session: ComputeSession) -> None:
    ComputeSession.objects.filter(pk=session.pk).update(version=F("version") + 1)
    session.refresh_from_db(fields=["version", "status"])
    publish_on_commit([SessionEvent(str(session.pk), str(session.owner_id), session.status, session.version)])
