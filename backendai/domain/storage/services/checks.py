"""Validates the arguments of the folder services, and builds their errors."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import models

from backendai.base.core.errors import Conflict, NotFound, UserError
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import Project, User
from backendai.domain.storage.claims import claims_on
from backendai.domain.storage.models import Folder, StorageHost, folder_name_rule
from backendai.domain.storage.status import FolderStatus

_LARGEST = 2**63 - 1
_MOST_NAMED = 5


def check_name(name: str, *, field: str = "name") -> str:
    """Return the name. Raises a UserError for a name that a folder may not have."""
    try:
        folder_name_rule(name)
    except ValidationError as error:
        raise UserError(str(error.messages[0]), field=field, code="invalid-name") from error
    if set(name) == {"."}:
        raise UserError("A folder name has a letter or a digit.", field=field, code="invalid-name")
    return name


def check_limit(limit_bytes: int | None) -> int | None:
    """Return the limit; raises a UserError unless it is None or a number of bytes from 1."""
    if limit_bytes is not None and not 1 <= limit_bytes <= _LARGEST:
        text = Message("Write a limit from 1 to {largest} bytes, or none.", largest=_LARGEST)
        raise UserError(text, field="limit_bytes", code="invalid-limit")
    return limit_bytes


def check_choice(value: str, choices: type[models.TextChoices], field: str) -> str:
    """Return the value. Raises a UserError that lists the allowed values."""
    if value not in choices.values:
        text = Message(
            "Unknown {name} {value}: choose one of {values}.",
            name=field,
            value=repr(str(value)[:32]),
            values=choices.values,
        )
        raise UserError(text, field=field, code="unknown-choice")
    return str(value)


def host_for(user: User, host: StorageHost | None) -> StorageHost:
    """Return the host for a new folder of the user; without a named host, the default host."""
    rows = StorageHost.objects.filter(is_enabled=True)
    found: StorageHost | None = (rows.filter(pk=host.pk) if host else rows.order_by("-is_default", "name")).first()
    if found is None:
        text = (
            Message("Nobody can create folders on this storage host.")
            if host
            else Message("No storage host accepts new folders.")
        )
        raise Conflict("{text} Ask an administrator.", text=text, field="host", code="no-storage-host")
    return found


def managed_project(user: User, project: Project | None) -> Project | None:
    """Return the project; raises NotFound unless the user manages it, and for one that is not active."""
    if project is None:
        return None
    found: Project | None = Project.objects.managed_by(user).filter(pk=project.pk).select_related("domain").first()
    if found is None:
        raise NotFound("Project not found, or you do not manage it.", field="project", code="unknown-project")
    if not found.is_active or not found.domain.is_active:
        raise Conflict("Project {found} is not active.", found=found.name, field="project", code="project-not-active")
    return found


def refuse_while_mounted(folder: Folder) -> None:
    """Raise a Conflict that names sessions that have not ended and mount the folder; one query."""
    rows = folder.mounts.filter(released_at=None).order_by("created_at", "pk")
    columns = ("session_id", "session__name", "session__owner__email")
    mounts = list(rows.values_list(*columns).distinct()[: _MOST_NAMED + 1])
    if not mounts:
        return
    words = [Message("{session} of {owner}", session=name, owner=email) for _, name, email in mounts[:_MOST_NAMED]]
    more = ", …" if len(mounts) > _MOST_NAMED else ""
    raise Conflict(
        "The folder {folder} is mounted by {words}{more}. Terminate these sessions first.",
        folder=folder.name,
        words=words,
        more=more,
        code="folder-mounted",
        sessions=[str(pk) for pk, *_ in mounts[:_MOST_NAMED]],
    )


def refuse_while_needed(folder: Folder) -> None:
    """Raise a Conflict that names the endpoints and runs that would mount the folder later."""
    words = claims_on(folder, most=_MOST_NAMED + 1)
    if words:
        raise Conflict(
            "The folder {folder} is needed by {words}{more}. Delete or change what needs it first.",
            folder=folder.name,
            words=words[:_MOST_NAMED],
            more=", …" if len(words) > _MOST_NAMED else "",
            code="folder-needed",
        )


def refuse_while_cloned(folder: Folder) -> None:
    """Raise a Conflict while the folder is being copied; one query."""
    clone = folder.clones.filter(status=FolderStatus.CREATING).first()
    if clone is not None:
        text = Message(
            "The folder {folder} is being copied. Wait until the clone is ready, or delete the clone.",
            folder=folder.name,
        )
        raise Conflict(text, code="folder-cloned", clone=str(clone.pk))


def wrong_status(folder: Folder, done: str) -> Conflict:
    """Return the error for an action that the folder's status does not allow."""
    status = Folder.objects.filter(pk=folder.pk).values_list("status", flat=True).first() or FolderStatus.DELETED
    words = FolderStatus(status).label
    return Conflict(
        "The folder {folder} cannot be {done}: it is {words}.",
        folder=folder.name,
        done=done,
        words=words,
        code="folder-status",
        status=status,
    )


def name_taken(name: str) -> Conflict:
    """Return the error for a name that another folder of the owner has."""
    text = Message("This owner already has a folder {name}. Choose another name.", name=repr(name))
    return Conflict(text, field="name", code="name-taken")
