"""Checks the invariants of folders and mounts, in addition to the checks of sessions."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from django.db.models import F, Q

from backendai.domain.compute.models import SessionMount
from backendai.domain.compute.status import TERMINAL
from backendai.domain.storage.models import Folder, FolderGrant, StorageHost
from backendai.domain.storage.status import LIVE, FolderStatus

if TYPE_CHECKING:
    from backendai.domain.compute.auditing import Violations, World

_LONGEST_CREATION, _LONGEST_DELETION = timedelta(minutes=10), timedelta(days=1)
_MOUNTABLE = (FolderStatus.READY,)


def folders_are_whole(world: World) -> Violations:
    """F-01: every folder has a known status, and every folder in the trash a deletion time."""
    rows = Folder.objects.filter(
        ~Q(status__in=FolderStatus.values)
        | Q(status=FolderStatus.TRASHED, trashed_at=None)
        | Q(status=FolderStatus.READY, trashed_at__isnull=False)
        | Q(trashed_at__gt=world.now + timedelta(minutes=5))
    )
    return [f"folder {folder.pk} is {folder.status}, in the trash since {folder.trashed_at}" for folder in rows]


def folders_have_owners(world: World) -> Violations:
    """F-02: no undeleted folder belongs to a purged account, and no one has a grant to their own folder."""
    purged = Folder.objects.filter(status__in=sorted(LIVE), user__purged_at__isnull=False)
    own = FolderGrant.objects.filter(user=F("folder__user")).values_list("folder_id", flat=True)
    return [f"folder {pk} belongs to a purged account" for pk in purged.values_list("pk", flat=True)] + [
        f"folder {pk} is shared with its owner" for pk in own
    ]


def mounts_follow_sessions(world: World) -> Violations:
    """F-03: a mount is released if and only if its session has ended, and mounted folders are ready."""
    mounts = SessionMount.objects.order_by("pk")
    kept = mounts.filter(released_at=None, session__status__in=TERMINAL).values_list("folder_name", "session_id")
    early = mounts.filter(cut_at=None).exclude(released_at=None).exclude(session__status__in=TERMINAL)
    lost = mounts.filter(released_at=None).exclude(folder__status__in=_MOUNTABLE)
    columns = ("folder_name", "session_id")
    return [
        *(f"folder {name} is still mounted by session {session}, which has ended" for name, session in kept),
        *(f"folder {name} is released though session {session} lives" for name, session in early.values_list(*columns)),
        *(f"folder {name} of session {session} is not ready" for name, session in lost.values_list(*columns)),
    ]


def folders_arrive(world: World) -> Violations:
    """F-04: no folder remains in transition while its storage host works (except for clones)."""
    late = Q(status=FolderStatus.CREATING, cloned_from=None, changed_at__lt=world.now - _LONGEST_CREATION)
    late |= Q(status=FolderStatus.DELETING, changed_at__lt=world.now - _LONGEST_DELETION)
    rows = Folder.objects.filter(late, host__fault="", host__answered_at__isnull=False)
    return [
        f"folder {folder.pk} is {folder.status} since {folder.changed_at.isoformat()}: {folder.status_message}"
        for folder in rows
    ]


def directories_are_known(world: World) -> Violations:
    """F-05: every directory of a storage host has a row (manage.py adopt_folders adds missing ones)."""
    return [
        f"storage host {host.name} holds folder {row.get('id')} ({row.get('name')} of {row.get('owner')})"
        for host in StorageHost.objects.all()
        for row in host.unknown_folders
    ]


FOLDER_CHECKS = {
    "F-01": folders_are_whole,
    "F-02": folders_have_owners,
    "F-03": mounts_follow_sessions,
    "F-04": folders_arrive,
    "F-05": directories_are_known,
}
