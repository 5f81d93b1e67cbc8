"""``kill -9`` of the file server at each named step of an upload, an archive, a clone and a deletion.

The server dies before or after a function of its own is called for the nth time; then another one is started. Nothing
half-done is seen, nothing is lost, and the client's next try completes what was asked for.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import random
import signal
import tarfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import urllib3

from backendai.base.paths.storage_layout import folder_path
from backendai.files.folders.sweeping import sweep
from backendai.files.process import run
from tests.files.conftest import prepare
from tests.files.test_kills import Process
from tests.files.test_uploads import KIND, TUS, metadata

pytestmark = pytest.mark.long
CONTENT = random.Random(3).randbytes(3 * 2**20)


@dataclass(frozen=True)
class Point:
    """Where the server dies: at the nth call of a function in a module, before or after it."""

    module: str
    function: str
    side: str = "before"
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.side} {self.module.rpartition('.')[2]}.{self.function} {self.nth}"

    def arm(self) -> None:
        """Let this process die here."""
        owner: Any = import_module(self.module)
        *path, name = self.function.split(".")
        for part in path:
            owner = getattr(owner, part)
        real, calls = getattr(owner, name), iter(range(1, 10**9))

        def dying(*args: Any, **kwargs: Any) -> Any:
            is_last = next(calls) == self.nth
            if is_last and self.side == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = real(*args, **kwargs)
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(owner, name, dying)


def serve(environ: dict[str, str], point: Point | None) -> None:
    if point is not None:
        point.arm()
    run({}, environ)


class Dying(Process):
    """A file server that dies at a point; started again, it does not."""

    point: Point | None = None

    def start(self) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.files.test_kill_points"])
        self.child = context.Process(target=serve, args=(self.environ, self.point), daemon=True)
        self.child.start()
        while True:
            try:
                if self.http.request("GET", f"http://127.0.0.1:{self.port}/health").status == 200:
                    return
            except urllib3.exceptions.HTTPError:
                assert self.child.is_alive()
                time.sleep(0.01)

    def kill(self) -> None:
        self.child.kill()
        self.child.join()

    def restart(self, point: Point | None = None) -> None:
        self.kill()
        self.point = point
        self.start()

    def await_death(self) -> None:
        self.child.join(60)
        assert self.child.exitcode == -signal.SIGKILL, "the point was not reached"

    def attempt(self, method: str, path: str, folder: UUID, rights: str = "edit", **more: Any) -> Any:
        """Return the response; None when the server has died."""
        try:
            return self.ask(method, path, folder, rights, **more)
        except (urllib3.exceptions.HTTPError, OSError):
            return None


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Dying]:
    one = Dying(prepare(tmp_path / "host"))
    yield one
    one.kill()


UPLOADS, CONTENT_MODULE = "backendai.files.entries.uploads", "backendai.files.entries.content"
UPLOAD_POINTS = [
    Point(UPLOADS, "create"),
    Point(UPLOADS, "_write"),  # the file is there, its state is not
    Point(UPLOADS, "create", "after"),
    Point(UPLOADS, "open_at"),
    Point(UPLOADS, "write"),
    Point(UPLOADS, "write", "after"),
    Point(UPLOADS, "sync"),
    Point(UPLOADS, "_write", nth=2),  # the bytes are safe, and nobody knows
    Point(UPLOADS, "sync", "after"),
    Point(UPLOADS, "finish"),  # all bytes are safe, and the file is not in its place
    Point(CONTENT_MODULE, "naming.rename"),
    Point(CONTENT_MODULE, "naming.rename", "after"),
    Point(UPLOADS, "finish", "after"),
]


def upload_until_whole(server: Dying, folder: UUID, name: str, address: str | None) -> None:
    """Do what a client does that comes again: go on where the server is, or begin anew where it knows nothing."""
    offset = None
    if address:
        told = server.ask("HEAD", address, folder, "edit", headers=TUS)
        assert told.status in (200, 404)
        offset = int(told.headers["Upload-Offset"]) if told.status == 200 else None
    if address is None or offset is None:
        listed = server.ask("GET", f"/entry?path={name}", folder, "view")
        if listed.status == 200:
            return
        headers = {**TUS, **metadata(name), "Upload-Length": str(len(CONTENT))}
        answer = server.ask("POST", "/uploads", folder, "edit", headers=headers)
        assert answer.status == 201
        address, offset = "/uploads/" + answer.headers["Location"][-32:], 0
    if offset < len(CONTENT):  # clients send nothing when they hear that all is there
        headers = {**TUS, **KIND, "Upload-Offset": str(offset)}
        assert server.ask("PATCH", address, folder, "edit", headers=headers, body=CONTENT[offset:]).status == 204


def test_an_upload_is_whole_or_not_there_wherever_the_server_dies(server: Dying) -> None:
    folder = uuid.uuid4()
    assert server.ask("PUT", "", folder, json={}).status == 201
    base = folder_path(server.root, folder)
    for number, point in enumerate(UPLOAD_POINTS):
        server.restart(point)
        name, address = f"f{number}", None
        headers = {**TUS, **metadata(name), "Upload-Length": str(len(CONTENT))}
        if answer := server.attempt("POST", "/uploads", folder, headers=headers):
            address = "/uploads/" + answer.headers["Location"][-32:]
            headers = {**TUS, **KIND, "Upload-Offset": "0"}
            server.attempt("PATCH", address, folder, headers=headers, body=CONTENT)
        server.await_death()
        seen = base / "data" / name
        assert not seen.exists() or seen.read_bytes() == CONTENT, str(point)
        server.restart()
        upload_until_whole(server, folder, name, address)
        assert seen.read_bytes() == CONTENT, str(point)
        assert sorted(os.listdir(base / "data")) == sorted(f"f{one}" for one in range(number + 1))
    server.kill()
    top = os.open(server.root, os.O_RDONLY)
    sweep(top, now=time.time() + 2 * 86400)
    os.close(top)
    assert os.listdir(base / "incoming") == []
    assert len(os.listdir(base / "data")) == len(UPLOAD_POINTS)
    server.restart()


UNPACKING = "backendai.files.entries.unpacking"
ARCHIVE_POINTS = [
    Point(UNPACKING, "_prepare", nth=2),
    Point(UNPACKING, "beneath.sync_all"),
    Point(UNPACKING, "beneath.sync_all", "after"),
    Point(UNPACKING, "naming.rename"),
    Point(UNPACKING, "naming.rename", "after", nth=2),
    Point(UNPACKING, "sync_names"),
    Point(UNPACKING, "sync_names", "after"),  # all is done, and the client hears nothing
]


def test_each_file_of_an_archive_is_whole_or_not_there_wherever_the_server_dies(server: Dying) -> None:
    folder = uuid.uuid4()
    assert server.ask("PUT", "", folder, json={}).status == 201
    base = folder_path(server.root, folder)
    for number, point in enumerate(ARCHIVE_POINTS):
        server.restart(point)
        wanted = {f"{number}/{name}": text for name, text in FILES.items()}
        server.attempt("PUT", "/archive", folder, body=tar_of(wanted))
        server.await_death()
        assert files_below(base / "data" / str(number)).items() <= FILES.items(), str(point)
        server.restart()
        answer = server.ask("PUT", "/archive", folder, "edit", body=tar_of(wanted)).json()
        assert answer["written"] + answer["equal"] == len(FILES), str(point)
        assert files_below(base / "data" / str(number)) == FILES, str(point)
    server.kill()
    top = os.open(server.root, os.O_RDONLY)
    sweep(top, now=time.time() + 2 * 86400)
    os.close(top)
    assert os.listdir(base / "incoming") == []
    server.restart()


def tar_of(files: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


CLONING, COPYING = "backendai.files.folders.cloning", "backendai.files.entries.changes"
CLONE_POINTS = [
    Point(CLONING, "order"),
    Point(CLONING, "make_skeleton"),  # a directory is there, and says nothing
    Point(CLONING, "write_meta"),
    Point(CLONING, "order", "after"),
    Point(CLONING, "fill"),
    Point(COPYING, "_copy_bytes", nth=2),  # an empty file
    Point(COPYING, "_copy_bytes", "after", nth=2),  # a whole file without its time
    Point(CLONING, "beneath.sync_all"),
    Point(CLONING, "publish"),
    Point(CLONING, "publish", "after"),
]
FILES = {f"d{number % 2}/f{number}": str(number) * 1000 for number in range(6)}


def files_below(data: Path) -> dict[str, str]:
    return {str(path.relative_to(data)): path.read_text() for path in data.rglob("*") if path.is_file()}


def make_source(server: Dying) -> UUID:
    folder = uuid.uuid4()
    assert server.ask("PUT", "", folder, json={}).status == 201
    for directory in ("d0", "d1"):
        assert server.ask("POST", "/directories", folder, "edit", json={"path": directory}).status == 201
    for name, text in FILES.items():
        assert server.ask("PUT", f"/content?path={name}", folder, "edit", body=text.encode()).status == 201
    return folder


def test_a_clone_is_whole_or_not_there_wherever_the_server_dies(server: Dying) -> None:
    source = make_source(server)
    for point in CLONE_POINTS:
        server.restart(point)
        target = uuid.uuid4()
        server.attempt("POST", "/clones", target, "manage", json={"source": str(source)})
        server.await_death()
        seen = folder_path(server.root, target) / "data"
        assert not seen.exists() or files_below(seen) == FILES, str(point)
        server.restart()
        if server.until(target, "ready", "cloning", "absent") == "absent":  # the portal asks again
            assert server.ask("POST", "/clones", target, json={"source": str(source)}).status == 202
        server.until(target, "ready")
        assert files_below(seen) == FILES, str(point)
        assert files_below(folder_path(server.root, source) / "data") == FILES
    assert os.listdir(server.root / ".staging") == []


LIFECYCLE, REMOVAL = "backendai.files.folders.lifecycle", "backendai.files.folders.removal"
DELETE_POINTS = [
    Point(LIFECYCLE, "set_aside"),
    Point(LIFECYCLE, "require_version", "after"),
    Point(LIFECYCLE, "os.rename"),
    Point(LIFECYCLE, "os.rename", "after"),  # not synced
    Point(LIFECYCLE, "set_aside", "after"),
    Point("backendai.files.folders.sweeping", "remove"),
    Point(REMOVAL, "os.unlink", "after"),
    Point(REMOVAL, "os.unlink", "after", nth=4),
    Point(REMOVAL, "os.rmdir"),
    Point("backendai.files.folders.sweeping", "remove", "after"),
]


def test_a_deleted_folder_is_whole_or_gone_wherever_the_server_dies(server: Dying) -> None:
    for point in DELETE_POINTS:
        server.restart()
        folder = make_source(server)
        kept = make_source(server)
        server.restart(point)
        server.attempt("DELETE", "", folder, "manage")
        server.await_death()
        base = folder_path(server.root, folder)
        assert not base.exists() or files_below(base / "data") == FILES, str(point)
        server.restart()
        assert server.ask("DELETE", "", folder).status == 202  # the portal asks until it is gone
        server.until(folder, "absent")
        assert not base.exists() and os.listdir(server.root / ".deleting") == []
        assert files_below(folder_path(server.root, kept) / "data") == FILES


TRASH = "backendai.files.folders.trash"
TRASH_POINTS = [
    Point(TRASH, "_describe_item"),
    Point(TRASH, "_describe_item", "after"),
    Point(TRASH, "os.rename"),  # of the description
    Point(TRASH, "os.rename", nth=2),
    Point(TRASH, "os.rename", "after", nth=2),
    Point(TRASH, "put_many_into_trash", "after"),
]


def test_a_deleted_file_can_be_restored_wherever_the_server_dies(server: Dying) -> None:
    folder = make_source(server)
    data = folder_path(server.root, folder) / "data"
    for point in TRASH_POINTS:
        server.restart(point)
        server.attempt("POST", "/deletions", folder, json={"paths": ["d0/f0"]})
        server.await_death()
        server.restart()
        items = server.ask("GET", "/trash", folder, "view").json()["items"]
        assert len(items) == (not (data / "d0/f0").exists()), str(point)
        for item in items:
            assert server.ask("POST", f"/trash/{item['id']}/restore", folder, "edit", json={}).status == 200
        assert files_below(data) == FILES, str(point)
