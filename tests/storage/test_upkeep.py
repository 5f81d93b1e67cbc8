"""The pass over storage hosts and folders: tries again, empties the trash, measures, and never deletes what it does not
know."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backendai.base.core.errors import Conflict
from backendai.celery import app
from backendai.domain.activity.models import AuditEntry, BackgroundJob
from backendai.domain.cluster.services import last_pass_at, take_lease
from backendai.domain.compute.auditing import World, run_checks
from backendai.domain.compute.models import SessionMount
from backendai.domain.compute.services.launching.purging import purge_user
from backendai.domain.storage.models import Folder, FolderSize, StorageHost
from backendai.domain.storage.orders import Measured
from backendai.domain.storage.services import (
    clone_folder,
    create_folder,
    purge_folder,
    rename_folder,
    transfer_folders,
    trash_folder,
)
from backendai.domain.storage.services.measuring import NOTICE, take_measurement
from backendai.domain.storage.status import FolderStatus
from backendai.portal.loops import folders, tasks
from tests.cast import Cast
from tests.factories import make_session
from tests.storage.fake_file_server import FakeFileServer

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]
NOW = timezone.now()
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
FOLDER_CHECKS = [f"F-0{number}" for number in range(1, 6)]


@pytest.fixture
def folder(cast: Cast, host: StorageHost) -> Folder:
    return create_folder(cast.alice, name="data", limit_bytes=1000, now=NOW)


def status_of(folder: Folder) -> str:
    folder.refresh_from_db()
    return folder.status


def test_it_writes_how_hosts_are(host: StorageHost, files: FakeFileServer) -> None:
    folders.run_folders(NOW)
    host.refresh_from_db()
    assert (host.free_bytes, host.fault, host.answered_at) == (4 * 10**11, "", NOW)
    files.fault = "The share is not mounted."
    folders.run_folders(NOW + HOUR)
    host.refresh_from_db()
    assert (host.fault, host.answered_at) == ("The share is not mounted.", NOW + HOUR)
    assert host.fault_since == NOW + HOUR
    address = host.address
    StorageHost.objects.update(address="http://127.0.0.1:1")
    folders.run_folders(NOW + 2 * HOUR)
    host.refresh_from_db()
    assert "does not answer" in host.fault and host.answered_at == host.fault_since == NOW + HOUR
    StorageHost.objects.update(address=address)
    files.fault = ""
    folders.run_folders(NOW + 3 * HOUR)
    host.refresh_from_db()
    assert (host.fault, host.fault_since) == ("", None)


def test_a_file_server_of_another_host_is_a_fault(host: StorageHost, files: FakeFileServer) -> None:
    StorageHost.objects.update(name="other")
    folders.run_folders(NOW)
    host.refresh_from_db()
    assert host.fault and host.answered_at is None


def test_it_makes_what_could_not_be_made(cast: Cast, host: StorageHost, files: FakeFileServer) -> None:
    files.refuses = (503, "storage-missing")
    folder = create_folder(cast.alice, name="data", now=NOW)
    folders.run_folders(NOW + HOUR)
    assert status_of(folder) == FolderStatus.CREATING
    assert run_checks(World(NOW + HOUR), FOLDER_CHECKS).keys() == {"F-04"}
    files.refuses = None
    assert folders.run_folders(NOW + HOUR) == 1
    assert (status_of(folder), folder.status_message) == (FolderStatus.READY, "")


def test_it_tells_a_server_of_changes_that_it_missed(folder: Folder, cast: Cast, files: FakeFileServer) -> None:
    files.refuses = (503, "storage-missing")
    rename_folder(folder, cast.alice, "corpus", now=NOW)
    files.refuses = None
    folders.run_folders(NOW)
    folder.refresh_from_db()
    assert (files.folders[str(folder.pk)]["meta"]["name"], folder.needs_push) == ("corpus", False)


def test_a_clone_becomes_ready_when_it_is_copied_and_an_error_when_it_fails(
    folder: Folder, cast: Cast, files: FakeFileServer
) -> None:
    files.clones_at_once = False
    first, second = (clone_folder(folder, cast.alice, name=name, now=NOW) for name in ("one", "two"))
    files.folders[str(first.pk)]["progress"] = {"bytes": 2**20, "files": 1, "total_bytes": 2**21}
    files.folders[str(second.pk)]["error"] = "The file x cannot be read."
    folders.run_folders(NOW)
    assert (status_of(first), first.status_message) == (FolderStatus.CREATING, "1 MiB of 2 MiB are copied.")
    assert (status_of(second), second.status_message) == (FolderStatus.ERROR, "The file x cannot be read.")
    files.folders[str(first.pk)]["state"] = "ready"
    folders.run_folders(NOW)
    assert status_of(first) == FolderStatus.READY
    assert files.folders[str(first.pk)]["limit"] == 1000


def test_a_purged_folder_is_deleted_once_its_server_has_removed_it(
    folder: Folder, cast: Cast, files: FakeFileServer
) -> None:
    files.deletes_at_once = False
    purge_folder(trash_folder(folder, cast.alice, now=NOW), cast.alice, typed_name="data", now=NOW)
    folders.run_folders(NOW)
    assert status_of(folder) == FolderStatus.DELETING
    del files.folders[str(folder.pk)]
    folders.run_folders(NOW)
    assert status_of(folder) == FolderStatus.DELETED


def test_the_trash_is_emptied_of_what_is_old(folder: Folder, cast: Cast, settings: Any) -> None:
    trash_folder(folder, cast.alice, now=NOW)
    folders.run_folders(NOW + 29 * DAY)
    assert status_of(folder) == FolderStatus.TRASHED
    settings.FOLDER_TRASH_FOR = timedelta(0)
    folders.run_folders(NOW + 31 * DAY)
    assert status_of(folder) == FolderStatus.TRASHED, "0: for ever"
    settings.FOLDER_TRASH_FOR = 30 * DAY
    folders.run_folders(NOW + 31 * DAY)
    assert status_of(folder) == FolderStatus.DELETED
    entry = AuditEntry.objects.get(action="folder.purge")
    assert (entry.actor, entry.details["by"]) == (None, "the end of its time in the trash")


def test_a_restored_database_deletes_nothing_that_was_used_since(
    folder: Folder, cast: Cast, files: FakeFileServer
) -> None:
    trash_folder(folder, cast.alice, now=NOW)
    files.folders[str(folder.pk)]["version"] = 99
    purge_folder(folder, cast.alice, typed_name="data", now=NOW)
    folders.run_folders(NOW)
    assert (status_of(folder), folder.trashed_at) == (FolderStatus.READY, None)
    assert "used after this database was saved" in folder.status_message
    assert files.folders[str(folder.pk)]["version"] == folder.version > 99
    purge_folder(trash_folder(folder, cast.alice, now=NOW), cast.alice, typed_name="data", now=NOW)
    assert (status_of(folder), files.folders) == (FolderStatus.DELETED, {})  # now it is meant


def test_a_folder_that_was_used_since_goes_back_to_the_trash_where_its_name_is_taken(
    folder: Folder, cast: Cast, files: FakeFileServer
) -> None:
    trash_folder(folder, cast.alice, now=NOW - 40 * DAY)
    create_folder(cast.alice, name="data", now=NOW)
    files.folders[str(folder.pk)]["version"] = 99
    folders.run_folders(NOW)
    assert (status_of(folder), folder.trashed_at) == (FolderStatus.TRASHED, NOW)
    assert str(folder.pk) in files.folders


def test_a_restored_database_finds_a_folder_that_was_made_since(folder: Folder, files: FakeFileServer) -> None:
    Folder.objects.filter(pk=folder.pk).update(status=FolderStatus.CREATING, version=1)
    files.folders[str(folder.pk)]["version"] = 99
    folders.run_folders(NOW)
    assert status_of(folder) == FolderStatus.READY
    assert folder.version > 99


def test_it_measures_once_a_day(folder: Folder, files: FakeFileServer) -> None:
    files.folders[str(folder.pk)]["bytes"] = 500
    folders.run_folders(NOW)
    folders.run_folders(NOW)
    folder.refresh_from_db()
    assert (folder.used_bytes, folder.used_files) == (500, 0)
    assert FolderSize.objects.get().used_bytes == 500
    path = f"/v1/folders/{folder.pk}/measurements"
    for hours in (1, 2, 23):
        folders.run_folders(NOW + hours * HOUR)
    assert files.orders("POST").count(path) == 1
    folders.run_folders(NOW + 25 * HOUR)
    assert files.orders("POST").count(path) == 2


def test_it_takes_in_what_the_host_has_measured_by_itself(folder: Folder, files: FakeFileServer) -> None:
    folders.run_folders(NOW)
    newer = NOW + timedelta(minutes=5)
    files.measured = [{"id": str(pk), "bytes": 700, "files": 3, "at": newer.timestamp()} for pk in (folder.pk, uuid4())]
    folders.run_folders(NOW + HOUR)
    folder.refresh_from_db()
    assert (folder.used_bytes, folder.used_files, folder.measured_at) == (700, 3, newer)
    take_measurement(folder, Measured(900, 4, NOW + HOUR), now=NOW + HOUR)
    folders.run_folders(NOW + HOUR)
    folder.refresh_from_db()
    assert folder.used_bytes == 900, "what the host says is older"


@pytest.mark.parametrize(("rights", "times"), [("edit", 2), ("view", 1)])
def test_it_measures_when_a_session_that_could_write_has_ended(
    folder: Folder, cast: Cast, files: FakeFileServer, rights: str, times: int
) -> None:
    Folder.objects.update(limit_bytes=None)
    for _ in range(2):
        folders.run_folders(NOW)
    path = f"/v1/folders/{folder.pk}/measurements"
    mount = SessionMount.objects.create(
        session=make_session(cast.alice), folder=folder, folder_name="data", target="/x", rights=rights
    )
    folder.refresh_from_db()
    soon = folder.measured_at + timedelta(seconds=1)
    folders.run_folders(soon)
    assert files.orders("POST").count(path) == 1, "it runs"
    SessionMount.objects.filter(pk=mount.pk).update(released_at=soon)
    folders.run_folders(soon + timedelta(seconds=30))
    assert files.orders("POST").count(path) == times


def test_its_owner_is_told_once_that_it_is_nearly_full(folder: Folder, cast: Cast) -> None:
    for used in (799, 800, 850, 750, 900, 600, 990):
        folder.refresh_from_db()
        take_measurement(folder, Measured(used, 1, NOW), now=NOW)
    told = list(BackgroundJob.objects.filter(kind=NOTICE).order_by("pk").values_list("message", "owner__email"))
    assert sorted(told) == [
        ("The folder data is 80 % full: 800 B of 1000 B.", "alice@example.com"),
        ("The folder data is 99 % full: 990 B of 1000 B.", "alice@example.com"),
    ]
    assert FolderSize.objects.get().used_bytes == 990, "one row for each day"


def test_unknown_directories_are_listed_and_never_deleted(
    folder: Folder, host: StorageHost, files: FakeFileServer
) -> None:
    ids = [f"00000000-0000-0000-0000-00000000000{number}" for number in range(1, 6)]
    for pk in ids:
        files.folders[pk] = {
            "state": "ready",
            "version": 7,
            "meta": {"name": "old", "owner": "user:x@y.z"},
            "files": {},
        }
    folders.run_folders(NOW)
    host.refresh_from_db()
    assert [row["id"] for row in host.unknown_folders] == ids
    assert host.unknown_folders[0] == {"id": ids[0], "version": 7, "name": "old", "owner": "user:x@y.z"}
    assert files.orders("DELETE") == []
    assert len(run_checks(World(NOW), FOLDER_CHECKS)["F-05"]) == 5


def adopt(*arguments: str) -> str:
    out = StringIO()
    try:
        call_command("adopt_folders", *arguments, stdout=out)
    except SystemExit:
        out.write("exit 1")
    return out.getvalue()


def test_lost_rows_are_written_anew_by_what_stands_beside_the_data(
    folder: Folder, cast: Cast, host: StorageHost, files: FakeFileServer
) -> None:
    rename_folder(folder, cast.alice, "corpus", now=NOW)
    shared = create_folder(cast.dana, name="shared", project=cast.project, member_rights="view", now=NOW)
    strange = create_folder(cast.bob, name="strange", now=NOW)
    files.folders[str(strange.pk)]["meta"]["owner"] = "user:gone@example.com"
    Folder.objects.all().delete()
    assert "2 to adopt, 1 cannot be adopted" in adopt()
    assert not Folder.objects.exists(), "without --write nothing is written"
    said = adopt("--write")
    assert "Its owner 'user:gone@example.com' does not exist here" in said and said.endswith("exit 1")
    found = Folder.objects.get(pk=folder.pk)
    assert (found.name, found.user, found.limit_bytes, found.status) == ("corpus", cast.alice, 1000, "READY")
    other = Folder.objects.get(pk=shared.pk)
    assert (other.project, other.member_rights) == (cast.project, "view")
    assert "1 adopted, 0 cannot" in adopt("--write", "--owner", "bob@example.com", "--host", "local")
    assert "0 adopted, 0 cannot" in adopt("--write")
    folders.run_folders(NOW)
    assert run_checks(World(NOW), FOLDER_CHECKS) == {}
    assert rename_folder(found, cast.alice, "again", now=NOW).needs_push is False


def test_it_asks_the_database_as_often_for_many_quiet_folders_as_for_one(cast: Cast, host: StorageHost) -> None:
    def queries() -> int:
        folders.run_folders(NOW)
        folders.run_folders(NOW)
        with CaptureQueriesContext(connection) as asked:
            folders.run_folders(NOW)
        return len(asked)

    create_folder(cast.alice, name="one", now=NOW)
    few = queries()
    for number in range(5):
        create_folder(cast.alice, name=f"more-{number}", now=NOW)
    assert queries() == few


def test_two_passes_at_once_are_one_and_beat_and_clock_begin_it(
    host: StorageHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert take_lease(folders.FOLDERS_LEASE, "elsewhere:1:2", now=NOW, duration=HOUR / 60)
    before = last_pass_at(folders.FOLDERS_LEASE)
    assert folders.run_folders(NOW) == 0
    host.refresh_from_db()
    assert host.answered_at is None and last_pass_at(folders.FOLDERS_LEASE) == before
    entry = app.conf.beat_schedule["folders"]
    assert (entry["task"], entry["schedule"]) == (tasks.run_folders.name, 30)
    started_at: list[Any] = []
    monkeypatch.setattr(folders, "begin", started_at.append)
    tasks.run_folders()
    assert len(started_at) == 1


def test_a_pass_that_takes_too_long_leaves_the_rest_to_the_next(folder: Folder, files: FakeFileServer) -> None:
    Folder.objects.update(status=FolderStatus.CREATING)
    times = iter([0.0, 1.0, *[100.0] * 50])
    folders.run_folders(NOW, clock=lambda: next(times))
    assert status_of(folder) == FolderStatus.CREATING
    folders.run_folders(NOW)
    assert status_of(folder) == FolderStatus.READY


def test_a_purge_of_an_account_waits_for_its_folders(folder: Folder, cast: Cast) -> None:
    cast.alice.is_active = False
    cast.alice.save()
    with pytest.raises(Conflict) as refused:
        purge_user(cast.dana, cast.alice, typed=cast.alice.email, now=NOW)
    assert (refused.value.code, refused.value.details["folders"]) == ("folders-left", {"READY": 1})
    create_folder(cast.bob, name="data", now=NOW)
    moved = transfer_folders(cast.dana, cast.alice, cast.bob, now=NOW)
    assert [(one.name, one.user) for one in moved] == [("data-2", cast.bob)]
    purge_user(cast.dana, cast.alice, typed=cast.alice.email, now=NOW)
    assert set(Folder.objects.values_list("name", flat=True)) == {"data", "data-2"}


def test_limits_from_before_hold_when_a_host_begins_to_enforce(
    folder: Folder, cast: Cast, host: StorageHost, files: FakeFileServer
) -> None:
    create_folder(cast.alice, name="free", now=NOW)
    folders.run_folders(NOW)
    before = len(files.asked)
    files.quota_mode = "enforced"
    folders.run_folders(NOW + timedelta(seconds=30))
    host.refresh_from_db()
    assert host.quota_mode == "enforced"
    assert [path for method, path, *_ in files.asked[before:] if path.endswith("/meta")] == [
        f"/v1/folders/{folder.pk}/meta"
    ]
    after = len(files.asked)
    folders.run_folders(NOW + timedelta(seconds=60))
    assert not [path for _, path, *_ in files.asked[after:] if path.endswith("/meta")]
