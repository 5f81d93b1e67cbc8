"""Ends sessions that mount a folder on which their owner has lost the rights."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db import transaction

from backendai.base.core.errors import Conflict, NotFound
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import User
from backendai.domain.activity.services import audit
from backendai.domain.compute.models import SessionMount
from backendai.domain.compute.services.life.ending import end_sessions
from backendai.domain.compute.services.status.moves import StatusCause
from backendai.domain.compute.status import LIVE, Phase
from backendai.domain.storage.models import Folder
from backendai.domain.storage.permissions import allows, require_rights, rights_of
from backendai.domain.storage.querysets import MANAGE

CUT_OFF = "folder-revoked"


def mount_to_cut(actor: User, folder: Folder, session_id: UUID) -> SessionMount:
    """Return the mount of this folder in a live session whose owner has lost the rights. Raises NotFound; NotAllowed
    unless the actor manages the folder; Conflict while the owner has the rights."""
    folder = require_rights(actor, folder, MANAGE)
    rows = SessionMount.objects.filter(folder=folder, session=session_id, released_at=None, session__status__in=LIVE)
    mount: SessionMount | None = rows.select_related("session__owner").first()
    if mount is None:
        raise NotFound(
            "No live session with this id mounts the folder {folder}.", folder=folder.name, code="not-mounted"
        )
    owner = mount.session.owner
    if allows(rights_of(owner, folder), mount.rights):
        raise Conflict(
            "{owner} still has the rights to {folder}. Stop sharing the folder with them first.",
            owner=owner.email,
            folder=folder.name,
            code="still-shared",
        )
    return mount


def note_unmounted(actor: User, mount: SessionMount, *, now: datetime) -> None:
    """Mark the folder as released from the session, after the session's agents have unmounted it."""
    with transaction.atomic():
        rows = SessionMount.objects.filter(session=mount.session, folder=mount.folder, released_at=None)
        rows.update(released_at=now, cut_at=now)
        audit(
            actor.pk,
            "folder.unmount",
            "folder",
            [mount.folder_id] if mount.folder_id else [],
            name=mount.folder_name,
            session=str(mount.session_id),
        )


def terminate_mounting_session(actor: User, folder: Folder, session_id: UUID, *, now: datetime) -> SessionMount:
    """Terminate the session by force and give its owner the reason; returns the mount. Raises NotFound, NotAllowed or
    Conflict like ``mount_to_cut``."""
    mount = mount_to_cut(actor, folder, session_id)
    session = mount.session
    message = Message(
        "{actor} cut it off from the folder {folder}, which is no longer shared with its owner.",
        actor=actor.email,
        folder=mount.folder_name,
    )
    with transaction.atomic():
        end_sessions([session.pk], StatusCause(Phase.TERMINATE, CUT_OFF, message), now=now, force=True)
        audit(actor.pk, "folder.cut-off", "folder", [folder.pk], name=folder.name, session=str(session.pk))
    return mount
