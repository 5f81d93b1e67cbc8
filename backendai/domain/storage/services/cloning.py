"""Copies folders, and links existing directories as folders."""

from __future__ import annotations

from datetime import datetime

from backendai.base.core.errors import Conflict, NotAllowed, UserError
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import Project, User
from backendai.domain.storage.models import Folder, StorageHost
from backendai.domain.storage.permissions import allows, require_rights
from backendai.domain.storage.querysets import MANAGE
from backendai.domain.storage.services.checks import (
    check_limit,
    check_name,
    host_for,
    managed_project,
    wrong_status,
)
from backendai.domain.storage.services.folders import add_folder
from backendai.domain.storage.status import FolderStatus, Rights, Usage

_LONGEST_PATH = 255


def clone_folder(
    folder: Folder,
    actor: User,
    *,
    name: str,
    project: Project | None = None,
    limit_bytes: int | None = None,
    host: StorageHost | None = None,
    now: datetime,
) -> Folder:
    """Return a new folder of the actor, or of a project that they manage, which is CREATING until every file is copied:
    by its file server, or to another ``host`` as a stream. ``limit_bytes`` None: the limit of the source. Those who
    manage the source may clone it, others if it is cloneable and they can view it."""
    folder = require_rights(actor, folder, Rights.VIEW)
    if not folder.is_cloneable and not allows(str(getattr(folder, "rights")), MANAGE):  # noqa: B009  (an annotation)
        text = Message(
            "The folder {folder} cannot be cloned. Ask a person who manages it to allow that.", folder=folder.name
        )
        raise NotAllowed(text, code="not-cloneable")
    if folder.linked_path:
        raise Conflict("A linked folder cannot be cloned: copy its files in a session.", code="linked-folder")
    if folder.status != FolderStatus.READY:
        raise wrong_status(folder, "cloned")
    clone = Folder(
        name=check_name(name),
        host=host_for(actor, host or folder.host),
        project=managed_project(actor, project),
        user=None if project else actor,
        usage=folder.usage,
        limit_bytes=folder.limit_bytes if limit_bytes is None else check_limit(limit_bytes),
        cloned_from=folder,
    )
    _refuse_too_small(folder, clone)
    filled_by = _note_nothing if clone.host_id != folder.host_id else None
    return add_folder(actor, clone, now=now, filled_by=filled_by)


def link_folder(
    actor: User, *, name: str, path: str, host: StorageHost | None = None, project: Project | None = None, now: datetime
) -> Folder:
    """Return a folder that offers an existing directory of a storage host read-only; superadmins only. The directory is
    never written, measured or deleted; the file server's own settings say which may be linked."""
    if not actor.is_superadmin:
        raise NotAllowed("Only superadmins may link directories.", code="not-allowed")
    parts = path.split("/")
    if not path.startswith("/") or len(path) > _LONGEST_PATH or ".." in parts or "\0" in path:
        text = Message(
            "Write an absolute path of at most {longest_path} characters without '..'.", longest_path=_LONGEST_PATH
        )
        raise UserError(text, field="path", code="invalid-path")
    folder = Folder(
        name=check_name(name),
        host=host_for(actor, host),
        project=managed_project(actor, project),
        user=None if project else actor,
        usage=Usage.GENERAL,
        member_rights=Rights.VIEW,
        linked_path=path,
    )
    return add_folder(actor, folder, now=now)


def _note_nothing(folder: Folder) -> None:
    """Do nothing: ``cloned_from`` already names the source of the files."""


def _refuse_too_small(source: Folder, clone: Folder) -> None:
    if clone.limit_bytes is not None and source.used_bytes is not None and source.used_bytes > clone.limit_bytes:
        text = Message(
            "The folder {source} holds {used_bytes} bytes: give the clone a limit of at least that.",
            source=source.name,
            used_bytes=source.used_bytes,
        )
        raise UserError(text, field="limit_bytes", code="limit-too-small", used_bytes=source.used_bytes)
