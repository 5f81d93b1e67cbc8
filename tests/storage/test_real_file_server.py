"""The portal's client and the real file server speak of the same: one life of folders through both."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core import serializers
from django.utils import timezone

from backendai.base.paths.storage_layout import Marker, folder_path, write_marker
from backendai.base.wire.tickets import public_key_of
from backendai.domain.compute.models import SessionMount
from backendai.domain.compute.spec import MountRequest
from backendai.domain.storage.entries import open_folder
from backendai.domain.storage.file_server import FileServerError
from backendai.domain.storage.models import Folder, FolderSize, StorageHost
from backendai.domain.storage.services import (
    clone_folder,
    create_folder,
    purge_folder,
    rename_folder,
    restore_folder,
    set_limit,
    trash_folder,
)
from backendai.domain.storage.services.adopting import adopt_folders
from backendai.domain.storage.status import FolderStatus
from backendai.files.entries import changes as copying
from backendai.portal.loops import folders
from tests.cast import Cast
from tests.factories import make_session
from tests.patience import until as wait_until
from tests.storage.served_app import served

config = pytest.importorskip("backendai.files.config")
server = pytest.importorskip("backendai.files.http.server")
pytestmark = pytest.mark.django_db
NOW = timezone.now()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    found = tmp_path / "folders"
    found.mkdir()
    write_marker(found, Marker(settings.DEPLOYMENT, "local", os.geteuid()))
    return found


@pytest.fixture
def host(db: None, root: Path) -> Iterator[StorageHost]:
    """A storage host whose file server runs in a thread."""
    values: dict[str, Any] = {"hosts": {"local": root}, "address": "127.0.0.1", "port": 1, "linkable": (root.parent,)}
    keys = {"key_file": root / "none", "public_key": public_key_of(settings.TICKET_KEY)}
    app = server.create_app(
        server.create_server(config.FilesSettings(**values, **keys, deployment=settings.DEPLOYMENT))
    )
    with served(app) as address:
        yield StorageHost.objects.create(name="local", address=address, is_default=True)


def until(is_so: Callable[[], bool]) -> None:
    """Run the pass until it is so: the server works in the background."""

    def look() -> bool:
        folders.run_folders(NOW)
        return is_so()

    wait_until(look)


def has(folder: Folder, status: FolderStatus) -> Callable[[], bool]:
    return lambda: Folder.objects.filter(pk=folder.pk, status=status).exists()


def test_a_folder_lives_from_its_creation_to_its_end(cast: Cast, host: StorageHost, root: Path) -> None:
    folder = create_folder(cast.alice, name="data", limit_bytes=10**6, now=NOW)
    assert (folder.status, folder.status_message) == (FolderStatus.READY, "")
    data = folder_path(root, folder.pk) / "data"
    (data / "note.txt").write_text("hello")
    files = open_folder(cast.alice, folder, to_edit=True)
    files.make_directory("new")
    files.move("note.txt", "new/note.txt")
    files.copy("new/note.txt", "copy.txt")
    with pytest.raises(FileServerError) as taken:
        files.make_directory("new")
    assert taken.value.status == 409
    looking = open_folder(cast.alice, folder)
    assert sorted((one["name"], one["kind"]) for one in looking.entries({"path": ""})["entries"]) == [
        ("copy.txt", "file"), ("new", "directory"),
    ]  # fmt: skip
    assert looking.entry({"path": "copy.txt"})["size"] == 5
    with pytest.raises(FileServerError) as refused:
        looking.make_directory("other")
    assert refused.value.status == 403
    files.delete(["copy.txt"])
    (item,) = looking.trash()["items"]
    files.restore(item["id"])
    assert (data / "copy.txt").read_text() == "hello"
    files.delete(["copy.txt"])
    files.empty_trash()

    renamed = set_limit(rename_folder(folder, cast.alice, "corpus", now=NOW), cast.alice, 10**7, now=NOW)
    assert not renamed.needs_push
    until(lambda: FolderSize.objects.filter(folder=folder).exists())
    assert Folder.objects.get().used_files == 1
    clone = clone_folder(renamed, cast.alice, name="copy", now=NOW)
    until(has(clone, FolderStatus.READY))
    assert (folder_path(root, clone.pk) / "data/new/note.txt").read_text() == "hello"

    purge_folder(trash_folder(clone, cast.alice, now=NOW), cast.alice, typed_name="copy", now=NOW)
    until(has(clone, FolderStatus.DELETED))
    assert not folder_path(root, clone.pk).exists() and data.exists()


def test_a_copy_that_takes_long_keeps_nobody_elses_list_waiting(
    cast: Cast, host: StorageHost, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, copy = threading.Event(), copying._copy_bytes
    monkeypatch.setattr(copying, "_copy_bytes", lambda *args: (opened.wait(60), copy(*args))[1])
    mine = create_folder(cast.alice, name="mine", now=NOW)
    other = create_folder(cast.bob, name="other", now=NOW)
    (folder_path(root, mine.pk) / "data/large").write_bytes(b"x" * 5000)
    files = open_folder(cast.alice, mine, to_edit=True)
    told = files.copy("large", "copy")  # answered after two seconds, as it goes on
    assert told["state"] == "running"
    assert open_folder(cast.bob, other).entries({"path": ""})["total"] == 0
    opened.set()
    while (told := files.operation(told["operation"]))["state"] == "running":
        pass
    assert told["result"] == {"path": "copy"}


def test_lost_rows_are_adopted(cast: Cast, host: StorageHost, root: Path) -> None:
    folder = create_folder(cast.alice, name="data", limit_bytes=10**6, is_cloneable=True, now=NOW)
    create_folder(cast.dana, name="shared", project=cast.project, now=NOW)
    Folder.objects.all().delete()
    folders.run_folders(NOW)
    assert {row["name"] for row in StorageHost.objects.get().unknown_folders} == {"data", "shared"}
    assert [one.problem for one in adopt_folders(host, dry=False, now=NOW)] == ["", ""]
    found = Folder.objects.get(pk=folder.pk)
    assert (found.user, found.limit_bytes, found.is_cloneable) == (cast.alice, 10**6, True)
    until(lambda: not Folder.objects.filter(needs_push=True).exists())


@pytest.mark.parametrize("is_mounted", [False, True])
def test_a_database_from_before_a_restore_deletes_nothing(
    cast: Cast, host: StorageHost, root: Path, is_mounted: bool
) -> None:
    """It was saved while the folder lay in the trash; the folder was restored, and a session mounted it."""
    folder = trash_folder(create_folder(cast.alice, name="data", now=NOW), cast.alice, now=NOW)
    saved = serializers.serialize("json", [Folder.objects.get()])
    (folder_path(root, folder.pk) / "data/weights").write_text("months of work")
    restore_folder(folder, cast.alice, now=NOW)
    if is_mounted:
        make_session(cast.alice, mounts=(MountRequest("data"),))
        folders.run_folders(NOW)
    SessionMount.objects.all().delete()  # the database knows nothing of the session, either
    for row in serializers.deserialize("json", saved):
        row.save()
    assert Folder.objects.get().status == FolderStatus.TRASHED
    for days in (31, 62, 93):
        folders.run_folders(NOW + timedelta(days=days))
    assert (folder_path(root, folder.pk) / "data/weights").read_text() == "months of work"
    assert Folder.objects.get().status == FolderStatus.READY


def test_a_launch_tells_the_disk_its_version(cast: Cast, host: StorageHost, root: Path) -> None:
    folder = create_folder(cast.alice, name="data", now=NOW)
    for _ in range(3):
        make_session(cast.alice, mounts=(MountRequest("data"),))
    folders.run_folders(NOW)
    folder.refresh_from_db()
    told = json.loads((folder_path(root, folder.pk) / "meta.json").read_text())
    assert told["version"] == folder.version == 5 and not folder.needs_push


def test_a_storage_that_is_not_there_is_a_fault(cast: Cast, host: StorageHost, root: Path) -> None:
    (root / ".backendai-storage.json").unlink()
    folders.run_folders(NOW)
    assert StorageHost.objects.get().fault
    assert create_folder(cast.alice, name="data", now=NOW).status == FolderStatus.CREATING
