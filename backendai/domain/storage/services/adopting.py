"""Adds rows for folders that lie on a storage host but are missing in the database, as after its loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils.dateparse import parse_datetime

from backendai.base.core.errors import UserError
from backendai.domain.accounts.models import Project, User
from backendai.domain.activity.services import COMMAND_LINE, audit
from backendai.domain.storage import orders
from backendai.domain.storage.models import Folder, StorageHost
from backendai.domain.storage.services.checks import check_name
from backendai.domain.storage.services.upkeep import name_of, owner_of
from backendai.domain.storage.status import FolderStatus, Rights, Usage


@dataclass(frozen=True, slots=True)
class Adopted:
    """The result for one unknown directory. ``problem`` is empty if it has got a row, or would get one."""

    folder_id: UUID
    name: str
    owner: str
    problem: str = ""


def adopt_folders(host: StorageHost, *, owner: User | None = None, dry: bool, now: datetime) -> Iterator[Adopted]:
    """Yield the result for each directory of the host that the database does not know. The name, owner and limit are
    those stored beside its data; folders of unknown owners get ``owner``. ``dry``: change nothing. Raises
    StorageSilent."""
    for found in orders.list_folders(host):
        if Folder.objects.filter(pk=found.folder_id).exists():
            continue
        said = owner_of(found)
        try:
            folder = _row(host, found, owner, now)
            if not dry:
                _write(folder)
        except UserError as error:
            yield Adopted(found.folder_id, name_of(found), said, error.message)
        else:
            yield Adopted(found.folder_id, folder.name, said)


def _row(host: StorageHost, found: orders.KnownFolder, fallback: User | None, now: datetime) -> Folder:
    meta = found.meta | _map(found.meta.get("more"))
    user, project = _owner(owner_of(found), fallback)
    limit, created_at = meta.get("limit_bytes"), parse_datetime(str(meta.get("created_at") or ""))
    usage, rights = str(meta.get("usage")), str(meta.get("member_rights"))
    return Folder(
        id=found.folder_id,
        name=check_name(name_of(found)),
        host=host,
        user=user,
        project=project,
        usage=usage if usage in Usage.values else Usage.GENERAL,
        member_rights=rights if rights in Rights.values else Rights.EDIT,
        is_cloneable=meta.get("is_cloneable") is True,
        linked_path=str(meta.get("linked_path") or "")[:255],
        limit_bytes=limit if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0 else None,
        status=FolderStatus.READY,
        version=min(found.version + 1, 2**31 - 1),
        needs_push=True,
        created_at=(created_at if created_at.tzinfo else created_at.replace(tzinfo=UTC)) if created_at else now,
        changed_at=now,
    )


def _owner(text: str, fallback: User | None) -> tuple[User | None, Project | None]:
    kind, _, name = text.partition(":")
    if kind == "user" and (user := User.objects.filter(email=name, purged_at=None).first()):
        return user, None
    domain, _, project_name = name.partition("/")
    project = Project.objects.filter(domain__name=domain, name=project_name).first() if kind == "project" else None
    if project is None and fallback is None:
        raise UserError(
            "Its owner {text} does not exist here. Name a new owner with --owner.", text=repr(text), code="no-owner"
        )
    return (None, project) if project else (fallback, None)


def _write(folder: Folder) -> None:
    name = folder.name
    for ending in ("", *(f"-{number}" for number in range(2, 100))):
        folder.name = name[: 64 - len(ending)] + ending
        try:
            with transaction.atomic():
                folder.save(force_insert=True)
                details = {"name": folder.name, "host": folder.host.name, "by": COMMAND_LINE}
                audit(None, "folder.adopt", "folder", [folder.pk], **details)
        except IntegrityError:
            continue
        return
    raise UserError("Its owner has too many folders named {name}.", name=repr(name), code="name-taken")


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
