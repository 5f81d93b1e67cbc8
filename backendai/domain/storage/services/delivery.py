"""Applies the state of a folder in the database to its file server.

The caller tries at once, the pass repeats. It may run any number of times and concurrently.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from backendai.base.core.messages import Message, shortened
from backendai.base.core.slots import format_size
from backendai.domain.activity.services import audit
from backendai.domain.storage import orders
from backendai.domain.storage.file_server import FileServerError, StorageSilent
from backendai.domain.storage.models import Folder, FolderFill
from backendai.domain.storage.status import FolderStatus
from backendai.domain.storage.transitions import transition

logger = logging.getLogger(__name__)

STALE = "stale-version"


def deliver(folder: Folder, *, now: datetime) -> bool:
    """Carry out the folder's next step at its file server; return whether the folder changed. A temporary error is
    saved in ``status_message`` and the pass retries; a final refusal sets the folder to ERROR."""
    try:
        changed = _deliver(folder, now)
    except StorageSilent as error:
        _note(folder, error.message)
        return False
    except FileServerError as error:
        changed = _refused(folder, error, now)
    if changed:
        folder.refresh_from_db(fields=["status", "status_message", "version", "changed_at", "needs_push"])
    return changed


def _deliver(folder: Folder, now: datetime) -> bool:
    if folder.status == FolderStatus.CREATING:
        if FolderFill.objects.filter(folder=folder).exists():
            orders.order_creation(folder)  # it is ready when its files are there
            return False
        return _clone(folder, now) if folder.cloned_from_id else _create(folder, now)
    if folder.status == FolderStatus.DELETING:
        return _delete(folder, now)
    if folder.needs_push and folder.status in (FolderStatus.READY, FolderStatus.TRASHED):
        orders.order_description(folder)
        return bool(Folder.objects.filter(pk=folder.pk, version=folder.version).update(needs_push=False))
    return False


def _create(folder: Folder, now: datetime) -> bool:
    orders.order_creation(folder)
    return _became_ready(folder, now)


def _clone(folder: Folder, now: datetime) -> bool:
    found = orders.ask_state(folder)
    if found.error:
        raise FileServerError(found.error, status=409, code="clone-failed")
    if found.state == orders.ABSENT:
        assert folder.cloned_from_id is not None  # as the caller has seen
        orders.order_clone(folder, folder.cloned_from_id)
        found = orders.ask_state(folder)
    if found.state == orders.READY:
        if folder.limit_bytes is not None:
            orders.order_limit(folder)
        return _became_ready(folder, now)
    if found.done_bytes:
        done = format_size(found.done_bytes)
        told = Message("{done} are copied.", done=done)
        if found.total_bytes:
            told = Message("{done} of {total} are copied.", done=done, total=format_size(found.total_bytes))
        _note(folder, told)
    return False


def _delete(folder: Folder, now: datetime) -> bool:
    if orders.ask_state(folder).state != orders.ABSENT:
        orders.order_deletion(folder)
        if orders.ask_state(folder).state != orders.ABSENT:
            return False
    return bool(transition([folder.pk], FolderStatus.DELETED, now=now, needs_push=False))


def _became_ready(folder: Folder, now: datetime) -> bool:
    only = [FolderStatus.CREATING]
    return bool(transition([folder.pk], FolderStatus.READY, now=now, only_from=only, needs_push=False))


def _refused(folder: Folder, error: FileServerError, now: datetime) -> bool:
    """Note a refusal. An order that is too old, after the database was restored, is adapted to what the server knows;
    but nothing is deleted then: the folder was used since."""
    if error.code == STALE:
        return _catch_up(folder, now)
    logger.warning("folder %s (%s): %s %s", folder.pk, folder.status, error.code, error.message)
    if folder.status == FolderStatus.CREATING:
        return bool(transition([folder.pk], FolderStatus.ERROR, now=now, status_message=shortened(error.message)))
    _note(folder, error.message)
    return False


def _catch_up(folder: Folder, now: datetime) -> bool:
    try:
        found = orders.ask_state(folder)
    except FileServerError as error:
        _note(folder, error.message)
        return False
    Folder.objects.filter(pk=folder.pk, version__lt=found.version).update(version=found.version)
    if folder.status == FolderStatus.DELETING:
        return _bring_back(folder, now)
    is_there = folder.status == FolderStatus.CREATING and found.state == orders.READY
    return _became_ready(folder, now) if is_there else False


def _bring_back(folder: Folder, now: datetime) -> bool:
    """Make a folder READY whose deletion the disk refuses: it was restored or mounted after this database was saved.
    Where another folder has its name by now, it goes to the trash anew."""
    told = Message(
        "It was used after this database was saved, so it is not deleted. Delete it again if nobody needs it."
    )
    columns: dict[str, Any] = {"only_from": [FolderStatus.DELETING], "status_message": told, "needs_push": True}
    with transaction.atomic():
        try:
            with transaction.atomic():
                moved = transition([folder.pk], FolderStatus.READY, now=now, trashed_at=None, **columns)
        except IntegrityError:
            moved = transition([folder.pk], FolderStatus.TRASHED, now=now, trashed_at=now, **columns)
        if moved:
            audit(None, "folder.restore", "folder", [folder.pk], name=folder.name, by="its later use, as its disk says")
    return bool(moved)


def _note(folder: Folder, message: str) -> None:
    if folder.status_message != (short := shortened(message)):
        folder.status_message = short
        Folder.objects.filter(pk=folder.pk, status=folder.status).update(status_message=short)
