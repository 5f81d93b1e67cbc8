"""Homes that are kept as folders, and folders that are copied to another host: with real file servers and gateways."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from backendai.agent.gateway.server import Gateway, GatewayView
from backendai.agent.kernel_index import KernelIndex
from backendai.base.core.errors import Conflict, NotAllowed
from backendai.base.paths.storage_layout import DATA, Marker, folder_path, write_marker
from backendai.base.wire.tickets import public_key_of
from backendai.domain.activity.jobs import cancel_job
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.compute.models import ComputeSession, HomeKeep, Kernel
from backendai.domain.compute.services.life.ending import end_sessions, terminate_session
from backendai.domain.compute.services.life.home_retention import homes_being_kept, keep_home
from backendai.domain.compute.services.status.moves import StatusCause
from backendai.domain.compute.status import Phase, Status
from backendai.domain.storage.models import Folder, FolderFill, StorageHost
from backendai.domain.storage.services import clone_folder, create_folder, purge_folder, retry_folder, set_limit
from backendai.domain.storage.services.folder_copies import LEASE, due_fills, take_fill
from backendai.domain.storage.status import FolderStatus
from backendai.files.config import FilesSettings
from backendai.files.http.server import create_app, create_server
from backendai.portal.loops import folder_copies as filling
from backendai.portal.loops import folders
from tests.agent.memory_backend import Entry, MemoryBackend
from tests.cast import Cast
from tests.factories import make_agent, make_running_session
from tests.storage.served_app import served

pytestmark = pytest.mark.django_db
Contents = dict[str, bytes]


@contextmanager
def file_server(root: Path, name: str, **row: Any) -> Iterator[StorageHost]:
    """A storage host with its file server."""
    root.mkdir()
    write_marker(root, Marker(settings.DEPLOYMENT, name, os.geteuid()))
    key = public_key_of(settings.TICKET_KEY)
    told = FilesSettings({name: root}, "127.0.0.1", 1, (), root / "none", key, settings.DEPLOYMENT)
    with served(create_app(create_server(told))) as address:
        yield StorageHost.objects.create(name=name, address=address, **row)


@pytest.fixture
def local(db: None, tmp_path: Path) -> Iterator[StorageHost]:
    with file_server(tmp_path / "local", "local", is_default=True) as host:
        yield host


@pytest.fixture
def home(tmp_path: Path) -> Path:
    found = tmp_path / "home"
    (found / "sub").mkdir(parents=True)
    (found / "sub/model.bin").write_bytes(os.urandom(3_000_000))
    (found / ".bashrc").write_text("alias l=ls\n")
    (found / "link").symlink_to("sub/model.bin")
    return found


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def session(cast: Cast, home: Path, backend: MemoryBackend) -> Iterator[ComputeSession]:
    """A session that runs on an agent with a gateway, which knows its home folder."""
    roster = KernelIndex()
    now = timezone.now
    view = GatewayView(
        backend, roster, lambda: public_key_of(settings.TICKET_KEY), lambda: now().timestamp(), lambda: {}
    )
    with served(Gateway(view).application()) as address:
        found = make_running_session(cast.alice, make_agent(gateway_url=address))
        kernel = found.kernels.get()
        roster.note(kernel.pk, kernel.generation)
        backend.entries[kernel.pk] = Entry(kernel.generation)
        backend.home_folders[kernel.pk] = home
        yield found


def contents(root: Path) -> Contents:
    return {str(one.relative_to(root)): one.read_bytes() for one in root.rglob("*") if one.is_file()}


def data_of(folder: Folder, tmp_path: Path) -> Path:
    return folder_path(tmp_path / folder.host.name, folder.pk) / DATA


def job_of(folder: Folder) -> BackgroundJob:
    found: BackgroundJob = BackgroundJob.objects.get(subject__startswith=folder.name)
    return found


def test_a_home_is_kept_as_a_folder(
    local: StorageHost, session: ComputeSession, cast: Cast, home: Path, tmp_path: Path
) -> None:
    folder = keep_home(cast.alice, session, name="kept", now=timezone.now())
    assert folder.status == FolderStatus.CREATING and homes_being_kept([session.pk]) == {session.pk}
    with pytest.raises(Conflict, match="being copied into the folder kept"):
        terminate_session(session, cast.alice)
    with pytest.raises(Conflict, match="being copied"):
        keep_home(cast.alice, session, name="again", now=timezone.now())
    folders.run_folders(timezone.now())  # the pass makes no empty folder of it
    folder.refresh_from_db()
    assert folder.status == FolderStatus.CREATING or contents(data_of(folder, tmp_path)) == contents(home)
    filling.fill_all()
    folder.refresh_from_db()
    assert (folder.status, folder.status_message) == (FolderStatus.READY, "")
    assert contents(data_of(folder, tmp_path)) == contents(home)
    assert os.readlink(data_of(folder, tmp_path) / "link") == "sub/model.bin"
    assert job_of(folder).status == BackgroundJob.Status.DONE
    assert not FolderFill.objects.exists() and not homes_being_kept([session.pk])
    session.refresh_from_db()
    assert session.status == Status.RUNNING


def test_the_session_ends_once_its_home_is_kept(local: StorageHost, session: ComputeSession, cast: Cast) -> None:
    keep_home(cast.alice, session, name="kept", ends_session=True, now=timezone.now())
    filling.fill_all()
    session.refresh_from_db()
    assert session.status == Status.TERMINATING and Folder.objects.get().status == FolderStatus.READY


def test_only_its_owner_keeps_the_home_of_a_session_that_runs(
    local: StorageHost, session: ComputeSession, cast: Cast
) -> None:
    with pytest.raises(NotAllowed):
        keep_home(cast.dana, session, name="kept", now=timezone.now())
    end_sessions([session.pk], StatusCause(Phase.TERMINATE, "user-requested", "x"), now=timezone.now())
    session.refresh_from_db()
    with pytest.raises(Conflict, match="being ended"):
        keep_home(cast.alice, session, name="kept", now=timezone.now())
    assert not Folder.objects.exists() and not HomeKeep.objects.exists()


def test_a_copy_that_breaks_off_goes_on_with_the_rest(
    local: StorageHost, session: ComputeSession, cast: Cast, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = keep_home(cast.alice, session, name="kept", now=timezone.now())
    with monkeypatch.context() as patch:
        patch.setattr("backendai.base.paths.packing.read_content", _break_off)
        filling.fill_all()
    folder.refresh_from_db()
    assert folder.status == FolderStatus.CREATING
    assert "interrupted the copy" not in folder.status_message  # the owner is told how far it is
    fill = FolderFill.objects.get()
    assert fill.tries == 1 and due_fills(timezone.now()) == []
    FolderFill.objects.update(taken_until=timezone.now())
    filling.fill_all()
    assert contents(data_of(folder, tmp_path)) == contents(home)
    folder.refresh_from_db()
    assert folder.status == FolderStatus.READY


def test_what_came_is_kept_when_the_session_ends_on_the_way(
    local: StorageHost, session: ComputeSession, cast: Cast, backend: MemoryBackend, tmp_path: Path
) -> None:
    folder = keep_home(cast.alice, session, name="kept", now=timezone.now())
    FolderFill.objects.update(sent_bytes=10)
    ComputeSession.objects.update(status=Status.TERMINATED)
    backend.home_folders.clear()
    filling.fill_all()
    folder.refresh_from_db()
    assert folder.status == FolderStatus.READY and "Not all files of the home are here." in folder.status_message
    assert job_of(folder).status == BackgroundJob.Status.FAILED
    other = keep_home_row(cast, session)
    filling.fill_all()
    other.refresh_from_db()
    assert other.status == FolderStatus.ERROR and "does not send the home folder" in other.status_message


def keep_home_row(cast: Cast, session: ComputeSession) -> Folder:
    def note(folder: Folder) -> None:
        kernel: Kernel = session.kernels.get()
        HomeKeep.objects.create(
            folder=folder, user=cast.alice, session=session, kernel=kernel, generation=kernel.generation
        )

    return create_folder(cast.alice, name="none", filled_by=note, now=timezone.now())


def test_a_cancelled_copy_leaves_nothing(
    local: StorageHost, session: ComputeSession, cast: Cast, tmp_path: Path
) -> None:
    folder = keep_home(cast.alice, session, name="kept", now=timezone.now())
    cancel_job(cast.alice, job_of(folder).pk, now=timezone.now())
    filling.fill_all()
    folder.refresh_from_db()
    assert folder.status == FolderStatus.DELETING and not FolderFill.objects.exists()
    assert job_of(folder).status == BackgroundJob.Status.CANCELLED
    folders.run_folders(timezone.now())
    assert not data_of(folder, tmp_path).exists()
    assert terminate_session(session, cast.alice).terminating


def test_a_purged_folder_ends_the_copy(local: StorageHost, session: ComputeSession, cast: Cast) -> None:
    folder = keep_home(cast.alice, session, name="kept", now=timezone.now())
    purge_folder(folder, cast.alice, typed_name="kept", now=timezone.now())
    filling.fill_all()
    folder.refresh_from_db()
    assert folder.status in (FolderStatus.DELETING, FolderStatus.DELETED) and not FolderFill.objects.exists()


def test_a_folder_is_copied_to_another_host(local: StorageHost, cast: Cast, home: Path, tmp_path: Path) -> None:
    source = create_folder(cast.alice, name="data", now=timezone.now())
    for name, content in contents(home).items():
        path = data_of(source, tmp_path) / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    with file_server(tmp_path / "nas", "nas") as nas:
        copy = clone_folder(source, cast.alice, name="copy", host=nas, now=timezone.now())
        assert (copy.status, copy.host) == (FolderStatus.CREATING, nas)
        filling.fill_all()
        copy.refresh_from_db()
        assert copy.status == FolderStatus.READY
        assert contents(data_of(copy, tmp_path)) == contents(home)
        small = clone_folder(source, cast.alice, name="small", host=nas, limit_bytes=1000, now=timezone.now())
        filling.fill_all()
        small.refresh_from_db()
        assert small.status == FolderStatus.ERROR and "do not fit" in small.status_message
        small = set_limit(small, cast.alice, None, now=timezone.now())
        retry_folder(small, cast.alice, now=timezone.now())
        filling.fill_all()
        small.refresh_from_db()
        assert small.status == FolderStatus.READY and contents(data_of(small, tmp_path)) == contents(home)


def test_one_worker_has_a_copy_until_it_is_silent(local: StorageHost, session: ComputeSession, cast: Cast) -> None:
    now = timezone.now()
    keep_home(cast.alice, session, name="kept", now=now)
    first, second = due_fills(now)[0], due_fills(now)[0]
    assert take_fill(first, "one", now=now) and not take_fill(second, "two", now=now)
    assert due_fills(now) == []
    later = now + LEASE
    assert take_fill(due_fills(later)[0], "two", now=later)


def _break_off(descriptor: int, size: int) -> Iterator[bytes]:
    os.close(descriptor)
    yield b"x" * 100
    raise PermissionError(13, "Permission denied")
