"""Creates, changes, trashes, restores and purges folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F

from backendai.base.core.errors import Conflict, UserError
from backendai.domain.accounts.models import Project, User
from backendai.domain.activity.access_notices import withdraw_access
from backendai.domain.activity.services import audit
from backendai.domain.storage.limits import check_room, owner_of
from backendai.domain.storage.models import Folder, FolderFill, StorageHost
from backendai.domain.storage.permissions import require_rights
from backendai.domain.storage.querysets import MANAGE
from backendai.domain.storage.services.checks import (
    check_choice,
    check_limit,
    check_name,
    host_for,
    managed_project,
    name_taken,
    refuse_while_cloned,
    refuse_while_mounted,
    refuse_while_needed,
    wrong_status,
)
from backendai.domain.storage.services.delivery import deliver
from backendai.domain.storage.services.folder_copies import open_fill
from backendai.domain.storage.status import FolderStatus, Rights, Usage
from backendai.domain.storage.transitions import transition


def create_folder(
    user: User,
    *,
    name: str,
    host: StorageHost | None = None,
    project: Project | None = None,
    usage: str = Usage.GENERAL,
    limit_bytes: int | None = None,
    is_cloneable: bool = False,
    member_rights: str = Rights.EDIT,
    filled_by: Callable[[Folder], None] | None = None,
    now: datetime,
) -> Folder:
    """Return a new folder of the user, or of a project that the user manages; READY when its file server has made it
    within its deadline, else CREATING until the pass succeeds.
    ``filled_by`` notes in the same transaction where its files come from; it is READY when they are there.

    Raises a UserError by field, and a Conflict for a taken name or a policy's limit, with nothing written."""
    folder = Folder(
        name=check_name(name),
        host=host_for(user, host),
        project=managed_project(user, project),
        user=None if project else user,
        usage=check_choice(usage, Usage, "usage"),
        member_rights=check_choice(member_rights, Rights, "member_rights"),
        limit_bytes=check_limit(limit_bytes),
        is_cloneable=is_cloneable,
    )
    return add_folder(user, folder, now=now, filled_by=filled_by)


def change_folder(
    folder: Folder, actor: User, values: Mapping[str, Any], *, check: Callable[[], None] | None = None, now: datetime
) -> Folder:
    """Return the folder with these values of ``name``, ``limit_bytes``, ``member_rights`` and ``is_cloneable`` written,
    all or none. ``check`` is called before, while the row is locked. Raises what it raises, a UserError by field, a
    Conflict for a taken name or a policy's limit."""
    clean = {name: _CLEAN[name](value) for name, value in values.items()}
    return _change(folder, actor, "folder.change", clean, check=check, now=now)


def rename_folder(folder: Folder, actor: User, name: str, *, now: datetime) -> Folder:
    """Return the folder with another name; sessions that mount it keep their paths. Raises Conflict if it is taken."""
    return _change(folder, actor, "folder.rename", {"name": check_name(name)}, now=now)


def set_limit(folder: Folder, actor: User, limit_bytes: int | None, *, now: datetime) -> Folder:
    """Return the folder with another limit, None for none; raises Conflict beyond a policy's limit. A smaller limit
    than before is never beyond it."""
    return _change(folder, actor, "folder.set-limit", {"limit_bytes": check_limit(limit_bytes)}, now=now)


def set_member_rights(folder: Folder, actor: User, rights: str, *, now: datetime) -> Folder:
    """Return the project folder with what members without rights of their own may do."""
    return _change(folder, actor, "folder.set-member-rights", {"member_rights": _check_rights(rights)}, now=now)


def set_cloneable(folder: Folder, actor: User, is_cloneable: bool, *, now: datetime) -> Folder:
    """Return the folder, which those who can view it may clone from now on, or not."""
    return _change(folder, actor, "folder.set-cloneable", {"is_cloneable": bool(is_cloneable)}, now=now)


def trash_folder(folder: Folder, actor: User, *, now: datetime) -> Folder:
    """Move the folder to the trash, where it stays until it is restored or its time is up. Raises a Conflict that names
    the sessions that mount it, or the endpoints and runs that will; a launch with it at the same time and this exclude
    each other."""
    with transaction.atomic():
        folder = require_rights(actor, Folder.objects.select_for_update().get(pk=folder.pk), MANAGE)
        refuse_while_mounted(folder)
        refuse_while_needed(folder)
        if not transition([folder.pk], FolderStatus.TRASHED, now=now, trashed_at=now):
            raise wrong_status(folder, "moved to the trash")
        audit(actor.pk, "folder.trash", "folder", [folder.pk], name=folder.name)
        withdraw_access(("folder", folder.pk))
    folder.refresh_from_db(fields=["status", "status_message", "version", "changed_at", "trashed_at"])
    return folder


def restore_folder(folder: Folder, actor: User, *, name: str = "", now: datetime) -> Folder:
    """Return the folder, taken out of the trash, under another ``name`` if one is given. Raises Conflict when the name
    is taken or a policy's limit would be exceeded."""
    folder = require_rights(actor, folder, MANAGE)
    wanted = check_name(name) if name else folder.name
    try:
        with transaction.atomic():
            size = folder.limit_bytes if folder.limit_bytes is not None else folder.used_bytes or 0
            if not folder.linked_path:
                check_room(owner_of(folder), size, without=folder)
            # The disk learns the version, too: a database from before the restore cannot delete the folder any more.
            columns: dict[str, Any] = {"name": wanted, "trashed_at": None, "needs_push": True}
            sources = [FolderStatus.TRASHED]
            if not transition([folder.pk], FolderStatus.READY, now=now, only_from=sources, **columns):
                raise wrong_status(folder, "restored")
            audit(actor.pk, "folder.restore", "folder", [folder.pk], name=wanted)
    except IntegrityError as error:
        raise name_taken(wanted) from error
    folder.refresh_from_db(from_queryset=Folder.objects.select_related("host", "user", "project__domain"))
    deliver(folder, now=now)
    return folder


def retry_folder(folder: Folder, actor: User, *, now: datetime) -> Folder:
    """Return the folder, whose creation is tried once more."""
    folder = require_rights(actor, folder, MANAGE)
    with transaction.atomic():
        if not transition([folder.pk], FolderStatus.CREATING, now=now, only_from=[FolderStatus.ERROR]):
            raise wrong_status(folder, "created once more")
        if FolderFill.objects.filter(folder=folder).exists():
            open_fill(folder, actor, now=now)
        audit(actor.pk, "folder.retry", "folder", [folder.pk], name=folder.name)
    folder.refresh_from_db(fields=["status", "status_message", "version", "changed_at"])
    deliver(folder, now=now)
    return folder


def purge_folder(folder: Folder, actor: User, *, typed_name: str, now: datetime) -> Folder:
    """Delete a folder of the trash, or one that was never made, with its files, for good. ``typed_name`` is its name,
    typed to confirm. Returns it DELETING, or DELETED when its file server has confirmed."""
    folder = require_rights(actor, folder, MANAGE)
    if folder.status == FolderStatus.READY:
        raise Conflict("The folder is in use. Move it to the trash first.", code="not-in-trash")
    if typed_name != folder.name:
        raise UserError("Type the name of the folder exactly as it is.", field="name", code="not-confirmed")
    with transaction.atomic():
        folder = require_rights(actor, Folder.objects.select_for_update().get(pk=folder.pk), MANAGE)
        refuse_while_mounted(folder)
        refuse_while_cloned(folder)
        if not transition([folder.pk], FolderStatus.DELETING, now=now):
            raise wrong_status(folder, "deleted")
        details = {"name": folder.name, "bytes": folder.used_bytes}
        audit(actor.pk, "folder.purge", "folder", [folder.pk], **details)
    folder.refresh_from_db(fields=["status", "status_message", "version", "changed_at"])
    deliver(folder, now=now)
    return folder


def add_folder(
    actor: User,
    folder: Folder,
    *,
    now: datetime,
    filled_by: Callable[[Folder], None] | None = None,
) -> Folder:
    """Write a new row within its owner's limits, have it made, and return it. ``filled_by``: its files come as a stream
    (``filling.py``), and this notes from where."""
    folder.created_by, folder.created_at, folder.changed_at = actor, now, now
    try:
        with transaction.atomic():
            if not folder.linked_path and folder.usage != Usage.HOME:
                check_room(owner_of(folder), folder.limit_bytes)
            folder.save(force_insert=True)
            details = {"name": folder.name, "host": folder.host.name, "owner": str(owner_of(folder))}
            if folder.cloned_from_id:
                details["source"] = str(folder.cloned_from_id)
            audit(actor.pk, "folder.create", "folder", [folder.pk], **details)
            if filled_by is not None:
                filled_by(folder)
                open_fill(folder, actor, now=now)
    except IntegrityError as error:
        raise name_taken(folder.name) from error
    deliver(folder, now=now)
    return folder


def _change(
    folder: Folder,
    actor: User,
    action: str,
    values: dict[str, Any],
    *,
    check: Callable[[], None] | None = None,
    now: datetime,
) -> Folder:
    """Write these columns of a folder that is not being deleted, tell its file server, and return it."""
    folder = require_rights(actor, folder, MANAGE)
    changes = {name: [getattr(folder, name), value] for name, value in values.items() if getattr(folder, name) != value}
    if not changes:
        return folder
    if "member_rights" in changes and folder.project_id is None:
        raise UserError("Only a folder of a project has members.", field="member_rights", code="not-of-project")
    try:
        with transaction.atomic():
            if check is not None:
                Folder.objects.select_for_update().get(pk=folder.pk)
                check()
            if "limit_bytes" in changes:
                _check_new_limit(folder, values["limit_bytes"])
            rows = Folder.objects.filter(pk=folder.pk, status__in=[FolderStatus.READY, FolderStatus.ERROR])
            if not rows.update(**values, needs_push=True, version=F("version") + 1):
                raise wrong_status(folder, "changed")
            audit(actor.pk, action, "folder", [folder.pk], name=folder.name, changes=changes)
    except IntegrityError as error:
        raise name_taken(str(values.get("name"))) from error
    folder.refresh_from_db(fields=[*values, "needs_push", "version", "status"])
    deliver(folder, now=now)
    return folder


def _check_new_limit(folder: Folder, limit_bytes: int | None) -> None:
    if folder.linked_path:
        raise UserError("A linked folder has no limit.", field="limit_bytes", code="linked-folder")
    is_smaller = limit_bytes is not None and folder.limit_bytes is not None and limit_bytes <= folder.limit_bytes
    if not is_smaller:
        check_room(owner_of(folder), limit_bytes, without=folder)


def _check_rights(rights: str) -> str:
    return check_choice(rights, Rights, "member_rights")


_CLEAN: dict[str, Callable[[Any], Any]] = {
    "name": check_name,
    "limit_bytes": check_limit,
    "member_rights": _check_rights,
    "is_cloneable": bool,
}
