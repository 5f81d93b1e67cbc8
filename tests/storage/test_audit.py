"""``manage.py audit`` finds what must not be of folders, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.compute.auditing import World, run_checks
from backendai.domain.compute.models import ComputeSession, SessionMount
from backendai.domain.compute.status import Status
from backendai.domain.storage.models import Folder, FolderGrant, StorageHost
from backendai.domain.storage.services import create_folder
from backendai.domain.storage.status import FolderStatus
from tests.cast import Cast
from tests.effort import some
from tests.factories import make_session

pytestmark = pytest.mark.django_db
NOW = timezone.now()
CHECKS = [f"F-0{number}" for number in range(1, 6)]
LONG_AGO = NOW - timedelta(days=2)


def found() -> list[str]:
    return sorted(run_checks(World(NOW), CHECKS))


@pytest.fixture
def folder(cast: Cast, host: StorageHost) -> Folder:
    """A folder that a waiting session mounts, on a host that answers."""
    folder = create_folder(cast.alice, name="data", now=NOW)
    session = make_session(cast.alice)
    SessionMount.objects.create(session=session, folder=folder, folder_name="data", target="/d", rights="edit")
    StorageHost.objects.update(answered_at=NOW)
    assert found() == []
    return folder


def change_folder(**values: object) -> Callable[[Folder], object]:
    return lambda folder: Folder.objects.filter(pk=folder.pk).update(**values)


BROKEN: dict[str, tuple[Callable[[Folder], object], list[str]]] = {
    "an unknown status": (change_folder(status="LOST"), ["F-01", "F-03"]),
    "ready and in the trash": (change_folder(trashed_at=NOW), ["F-01"]),
    "in the trash without a time": (change_folder(status=FolderStatus.TRASHED), ["F-01", "F-03"]),
    "mounted in the trash": (change_folder(status=FolderStatus.TRASHED, trashed_at=NOW), ["F-03"]),
    "of a purged account": (lambda folder: User.objects.filter(pk=folder.user_id).update(purged_at=NOW), ["F-02"]),
    "shared with its owner": (
        lambda folder: FolderGrant.objects.create(folder=folder, user=folder.user, rights="view"), ["F-02"],
    ),
    "mounted by an ended session": (
        lambda folder: ComputeSession.objects.update(status=Status.TERMINATED, ended_at=NOW), ["F-03"],
    ),
    "released by a live session": (lambda folder: SessionMount.objects.update(released_at=NOW), ["F-03"]),
    "long in creation": (change_folder(status=FolderStatus.CREATING, changed_at=LONG_AGO), ["F-03", "F-04"]),
    "long in deletion": (change_folder(status=FolderStatus.DELETING, changed_at=LONG_AGO), ["F-03", "F-04"]),
    "a directory without a row": (
        lambda folder: StorageHost.objects.update(unknown_folders=[{"id": "x", "name": "y", "owner": "z"}]), ["F-05"],
    ),
}  # fmt: skip


@some("name", BROKEN)
def test_the_audit_finds_it(folder: Folder, name: str) -> None:
    breaks, violated = BROKEN[name]
    breaks(folder)
    assert found() == violated


def test_what_waits_for_a_host_that_is_away_is_no_violation(folder: Folder) -> None:
    SessionMount.objects.all().delete()
    Folder.objects.update(status=FolderStatus.CREATING, changed_at=LONG_AGO)
    StorageHost.objects.update(fault="It does not answer.")
    assert found() == []
