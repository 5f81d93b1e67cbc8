"""What the pass does for folders and storage hosts: each can be done any number of times, and by two at once.

Nothing is deleted but what somebody put into the trash long ago; directories without a row are listed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Case, Exists, F, OuterRef, Q, Value, When

from backendai.base.core.messages import shortened
from backendai.domain.activity.services import audit_each
from backendai.domain.storage import orders
from backendai.domain.storage.file_server import FileServerError
from backendai.domain.storage.models import Folder, StorageHost
from backendai.domain.storage.services.delivery import deliver
from backendai.domain.storage.services.measuring import take_measurement, take_newer
from backendai.domain.storage.status import FolderStatus, QuotaMode, Rights
from backendai.domain.storage.transitions import transition

logger = logging.getLogger(__name__)

MEASURED_EVERY, MEASURED_IN_USE_EVERY = timedelta(days=1), timedelta(minutes=10)
MEASURED_UNLIMITED_EVERY = timedelta(hours=1)
ASKED_AGAIN_AFTER = timedelta(minutes=10)
LISTED_EVERY = timedelta(hours=1)
_MOST_DELIVERED, _MOST_MEASURED, _MOST_EMPTIED, _MOST_UNKNOWN = 200, 50, 200, 200
HasTime = Callable[[], bool]


def look_at_hosts(now: datetime, has_time: HasTime) -> list[StorageHost]:
    """Write how every storage host is; returns those that can be used."""
    usable = []
    for host in StorageHost.objects.order_by("name"):
        if not has_time():
            break
        if _look_at(host, now):
            usable.append(host)
    return usable


def deliver_due(hosts: Sequence[StorageHost], now: datetime, has_time: HasTime) -> int:
    """Have these hosts do what they have not done yet: make, delete, describe; returns how many folders changed."""
    moving = Q(status__in=[FolderStatus.CREATING, FolderStatus.DELETING])
    pushed = Q(needs_push=True, status__in=[FolderStatus.READY, FolderStatus.TRASHED])
    waits_for_it = Case(When(moving, then=Value(0)), default=Value(1))  # no number of descriptions delays a creation
    rows = Folder.objects.filter(moving | pushed, host__in=hosts).select_related("host", "user", "project__domain")
    return sum(
        _guarded(lambda folder=folder: deliver(folder, now=now), folder)  # type: ignore[misc]
        for folder in rows.order_by(waits_for_it, "changed_at", "pk")[:_MOST_DELIVERED]
        if has_time()
    )


def empty_trash(now: datetime) -> int:
    """Begin to delete folders whose time in the trash is up, but for those that are being copied; returns how many."""
    if not settings.FOLDER_TRASH_FOR:
        return 0
    copies = Folder.objects.filter(cloned_from=OuterRef("pk"), status=FolderStatus.CREATING)
    old = Folder.objects.filter(status=FolderStatus.TRASHED, trashed_at__lt=now - settings.FOLDER_TRASH_FOR)
    ids = list(old.exclude(Exists(copies)).order_by("trashed_at", "pk").values_list("pk", flat=True)[:_MOST_EMPTIED])
    if not ids:
        return 0
    with transaction.atomic():
        moved = transition(ids, FolderStatus.DELETING, now=now, only_from=[FolderStatus.TRASHED])
        rows = Folder.objects.filter(pk__in=moved).values_list("pk", "name", "used_bytes")
        details = {
            pk: {"name": name, "bytes": size, "by": "the end of its time in the trash"} for pk, name, size in rows
        }
        audit_each(None, "folder.purge", "folder", details)
    return len(moved)


def measure_due(hosts: Sequence[StorageHost], now: datetime, has_time: HasTime) -> int:
    """Ask for the sizes of folders that were not measured for a day (mounted: an hour, with a limit 10 minutes) or
    since a session ended that could write, and take in what was measured; returns how many sizes are new."""
    old = Q(measured_at=None) | Q(measured_at__lte=now - MEASURED_EVERY) | Q(measured_at__gt=now + MEASURED_EVERY)

    def written(**mounts: object) -> Q:
        return Q(Exists(Folder.objects.filter(pk=OuterRef("pk"), mounts__rights=Rights.EDIT, **mounts)))

    in_use = Q(measured_at__lte=now - MEASURED_UNLIMITED_EVERY)
    in_use |= Q(limit_bytes__isnull=False, measured_at__lte=now - MEASURED_IN_USE_EVERY)
    in_use &= written(mounts__released_at=None)
    since_use = written(mounts__released_at__gt=OuterRef("measured_at"))
    wanted = old | in_use | since_use
    rows = Folder.objects.filter(wanted, host__in=hosts, status=FolderStatus.READY, linked_path="")
    due = rows.select_related("host", "project__domain").order_by(F("measure_asked_at").asc(nulls_first=True), "pk")
    return sum(
        _guarded(lambda folder=folder: _measure(folder, now), folder)  # type: ignore[misc]
        for folder in due[:_MOST_MEASURED]
        if has_time()
    )


def list_unknown(hosts: Sequence[StorageHost], now: datetime, has_time: HasTime) -> int:
    """Write once an hour which directories of these hosts the database does not know; returns how many there are. None
    is ever deleted: the database may be older than the disk."""
    number = 0
    for host in hosts:
        is_fresh = host.listed_at is not None and timedelta(0) <= now - host.listed_at < LISTED_EVERY
        if is_fresh or not has_time():
            continue
        try:
            found = list(orders.list_folders(host))
        except (FileServerError, ValueError, KeyError) as error:
            logger.warning("storage host %s: its folders cannot be listed: %s", host.name, error)
            continue
        known = _known([one.folder_id for one in found])
        unknown = [
            {"id": str(one.folder_id), "version": one.version, "name": name_of(one), "owner": owner_of(one)}
            for one in found
            if one.folder_id not in known
        ]
        number += len(unknown)
        StorageHost.objects.filter(pk=host.pk).update(unknown_folders=unknown[:_MOST_UNKNOWN], listed_at=now)
    return number


def name_of(found: orders.KnownFolder) -> str:
    """Return the name that a directory says it has, empty when it says none."""
    return str(found.meta.get("name") or "")[:64]


def owner_of(found: orders.KnownFolder) -> str:
    """Return whose the directory says it is, as ``orders.owner_text`` wrote it."""
    return str(found.meta.get("owner") or "")[:320]


def _look_at(host: StorageHost, now: datetime) -> bool:
    try:
        found = orders.ask_host(host)
    except FileServerError as error:
        StorageHost.objects.filter(pk=host.pk).update(**_fault_of(host, shortened(error.message), now))
        return False
    if found.quota_mode == QuotaMode.ENFORCED != host.quota_mode:  # limits that were set before are to hold as well
        limited = Folder.objects.filter(host=host, limit_bytes__isnull=False, linked_path="")
        limited.filter(status__in=[FolderStatus.READY, FolderStatus.TRASHED]).update(needs_push=True)
    StorageHost.objects.filter(pk=host.pk).update(
        **_fault_of(host, found.fault, now),
        quota_mode=found.quota_mode,
        total_bytes=found.total_bytes,
        free_bytes=found.free_bytes,
        answered_at=now,
    )
    for folder in Folder.objects.filter(pk__in=found.measured, host=host, status=FolderStatus.READY):
        take_newer(folder, found.measured[folder.pk], now=now)
    return not found.fault


def _fault_of(host: StorageHost, fault: str, now: datetime) -> dict[str, Any]:
    """Return the columns of a fault. It lasts from when a host was seen with the first of several."""
    since = (host.fault_since or now) if host.fault else now
    return {"fault": fault, "fault_since": since if fault else None}


def _measure(folder: Folder, now: datetime) -> bool:
    """Take in a size that is newer than the last one; else ask for one, unless that was done a moment ago."""
    found = orders.ask_state(folder).measured
    asked_at = folder.measure_asked_at
    if found is not None and asked_at is not None and (folder.measured_at is None or found.at > folder.measured_at):
        take_measurement(folder, found, now=now)
        return True
    if asked_at is None or not timedelta(0) <= now - asked_at < ASKED_AGAIN_AFTER:
        orders.order_measurement(folder)
        Folder.objects.filter(pk=folder.pk).update(measure_asked_at=now)
    return False


def _guarded(work: Callable[[], bool], folder: Folder) -> bool:
    """Return what the work returns; one that fails does not keep the others waiting."""
    try:
        return work()
    except FileServerError as error:
        logger.warning("folder %s on %s: %s", folder.pk, folder.host.name, error.message)
    except Exception:
        logger.exception("folder %s on %s", folder.pk, folder.host.name)
    return False


def _known(ids: Sequence[UUID]) -> set[UUID]:
    known: set[UUID] = set()
    for start in range(0, len(ids), 500):  # SQLite takes so many parameters
        rows = Folder.objects.live().filter(pk__in=ids[start : start + 500])
        known |= set(rows.values_list("pk", flat=True))
    return known
