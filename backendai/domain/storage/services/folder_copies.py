"""Records the copying of files into new folders, from a session's home folder or another storage host.

A folder is CREATING until all files are copied. An interrupted copy continues and skips equal files. One worker fills
a folder at a time; another takes over after its lease ends.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Q

from backendai.base.core.messages import Message, shortened
from backendai.base.core.slots import format_size
from backendai.base.wire.broker.hints import hint_on_commit
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.domain.accounts.models import User
from backendai.domain.activity.jobs import finish_job, report_progress, start_job, stop_job
from backendai.domain.storage.models import Folder, FolderFill
from backendai.domain.storage.status import FolderStatus
from backendai.domain.storage.transitions import transition

FILL_JOB = "folder.fill"
LEASE = timedelta(seconds=60)
_PAUSE = timedelta(seconds=10)
_LONGEST, _SILENCE = timedelta(days=2), timedelta(minutes=15)
_MOST_TRIES = 8


def open_fill(folder: Folder, owner: User, *, now: datetime) -> FolderFill:
    """Add the record of a copy into the folder, and its background job for the owner. Runs in the caller's
    transaction."""
    job = start_job(
        FILL_JOB,
        f"{folder.name} ({folder.pk.hex[:12]})",
        Message("The files are about to be copied."),
        now=now,
        owner_id=owner.pk,
        silence_limit=_SILENCE,
        longest=_LONGEST,
    )
    values = {"job": job, "tries": 0, "is_over": False, "taken_by": "", "taken_until": None}
    fill: FolderFill = FolderFill.objects.update_or_create(folder=folder, defaults=values)[0]
    hint_on_commit("controller.fill_folders", queue=CONTROL_QUEUE)
    return fill


def due_fills(now: datetime) -> list[FolderFill]:
    """Return the copies that no worker holds, oldest first."""
    free = Q(taken_until=None) | Q(taken_until__lte=now) | Q(taken_until__gt=now + 2 * LEASE)
    return list(
        FolderFill.objects.filter(free, is_over=False).select_related(
            "folder__host", "folder__cloned_from__host", "job"
        )
    )


def take_fill(fill: FolderFill, worker: str, *, now: datetime) -> bool:
    """Assign a copy to the worker; return False if another worker was faster."""
    free = Q(taken_until=fill.taken_until) if fill.taken_until else Q(taken_until=None)
    return bool(FolderFill.objects.filter(free, pk=fill.pk).update(taken_by=worker, taken_until=now + LEASE))


def report_fill(fill: FolderFill, worker: str, done: int, total: int | None, *, now: datetime) -> bool:
    """Save the number of sent bytes; return whether to continue. False if the copy was cancelled or another worker has
    it."""
    held = FolderFill.objects.filter(pk=fill.pk, taken_by=worker, folder__status=FolderStatus.CREATING)
    if not held.update(taken_until=now + LEASE, sent_bytes=done):
        return False
    message = Message("{done} are copied.", done=format_size(done))
    if total:
        message = Message("{done} of about {total} are copied.", done=format_size(done), total=format_size(total))
    Folder.objects.filter(pk=fill.folder_id, status=FolderStatus.CREATING).update(status_message=message)
    share = min(done / total, 0.99) if total else None
    return fill.job_id is not None and report_progress(fill.job_id, share, message, now=now)


def finish_fill(fill: FolderFill, *, message: str = "", now: datetime) -> bool:
    """Set the folder to READY; return whether it was still waiting for its files."""
    with transaction.atomic():
        only = [FolderStatus.CREATING]
        if not transition(
            [fill.folder_id], FolderStatus.READY, now=now, only_from=only, status_message=shortened(message)
        ):
            return False
        FolderFill.objects.filter(pk=fill.pk).delete()
        if fill.job_id is not None:
            finish_job(fill.job_id, message=message or Message("All files are there."), failed=bool(message), now=now)
    return True


def put_off_fill(fill: FolderFill, message: str, *, now: datetime) -> bool:
    """Schedule another attempt of an interrupted copy. After too many attempts, let it fail and return False."""
    if fill.tries + 1 >= _MOST_TRIES:
        fail_fill(fill, message, now=now)
        return False
    FolderFill.objects.filter(pk=fill.pk).update(taken_until=now + _PAUSE, taken_by="", tries=F("tries") + 1)
    return True


def fail_fill(fill: FolderFill, message: str, *, now: datetime) -> None:
    """Set the folder to ERROR with this message."""
    with transaction.atomic():
        only = [FolderStatus.CREATING]
        transition([fill.folder_id], FolderStatus.ERROR, now=now, only_from=only, status_message=shortened(message))
        FolderFill.objects.filter(pk=fill.pk).update(is_over=True, taken_by="", taken_until=None)
        if fill.job_id is not None:
            finish_job(fill.job_id, message=message, failed=True, now=now)


def cancel_fill(fill: FolderFill, *, now: datetime) -> None:
    """Delete the folder with the files copied so far, after its owner cancelled the copy."""
    with transaction.atomic():
        transition([fill.folder_id], FolderStatus.DELETING, now=now, only_from=[FolderStatus.CREATING])
        FolderFill.objects.filter(pk=fill.pk).delete()
        if fill.job_id is not None:
            stop_job(fill.job_id, message=Message("Cancelled: what was copied is deleted."), now=now)
