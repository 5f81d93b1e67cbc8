"""Saves the measured sizes of folders, and notifies an owner once when a folder is nearly full."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db import transaction

from backendai.base.core.messages import Message
from backendai.base.core.slots import format_size
from backendai.domain.activity.jobs import finish_job, start_job
from backendai.domain.storage.models import Folder, FolderSize
from backendai.domain.storage.orders import Measured

NOTICE = "folder.nearly-full"
_NEARLY_FULL, _ROOM_AGAIN = 80, 70  # per cent


def take_newer(folder: Folder, found: Measured | None, *, now: datetime) -> bool:
    """Write the folder's size if it is newer than the one that the row has; returns whether it was."""
    if found is None or (folder.measured_at is not None and min(found.at, now) <= folder.measured_at):
        return False
    take_measurement(folder, found, now=now)
    at = min(found.at, now)
    folder.used_bytes, folder.used_files, folder.measured_at = found.used_bytes, found.used_files, at
    return True


def take_measurement(folder: Folder, found: Measured, *, now: datetime) -> None:
    """Write the folder's size, and that of the day. At 80 % of its limit its owner is told, again only after it was
    below 70 %."""
    at = min(found.at, now)
    sizes = {"used_bytes": found.used_bytes, "used_files": found.used_files}
    with transaction.atomic():
        Folder.objects.filter(pk=folder.pk).update(**sizes, measured_at=at, measure_asked_at=None)
        FolderSize.objects.update_or_create(folder=folder, day=at.date(), defaults=sizes)
        if folder.limit_bytes is None:
            return
        percent = 100 * found.used_bytes // folder.limit_bytes
        rows = Folder.objects.filter(pk=folder.pk)
        if percent < _ROOM_AGAIN:
            rows.exclude(nearly_full_at=None).update(nearly_full_at=None)
        elif percent >= _NEARLY_FULL and rows.filter(nearly_full_at=None).update(nearly_full_at=now):
            _tell(folder, found.used_bytes, folder.limit_bytes, percent, now)


def _tell(folder: Folder, used: int, limit: int, percent: int, now: datetime) -> None:
    """Send a notification to the folder's owner; for a project's folder, to its creator."""
    owner_id: UUID | None = folder.user_id or folder.created_by_id
    if owner_id is None:
        return
    job = start_job(NOTICE, folder.name, now=now, owner_id=owner_id)
    message = Message(
        "The folder {folder} is {percent} % full: {used} of {limit}.",
        folder=folder.name,
        percent=percent,
        used=format_size(used),
        limit=format_size(limit),
    )
    fix = Message("Delete files, or ask for a larger limit.")
    finish_job(job.pk, message=message, fix=fix, now=now, result={"folder": str(folder.pk), "percent": percent})
