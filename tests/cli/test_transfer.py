"""Copies: what an archive may write here, and uploads that go on or break off."""

from __future__ import annotations

import io
import tarfile
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bai.sdk.call import Problem
from bai.sdk.client import Client
from bai.sdk.nouns import Folder, Session
from bai.transfer import FolderFiles, SessionFiles, _tar_of
from tests.cli.stub import stub_portal

NOTE = "NOT INCLUDED.txt"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("bai.transfer.time.sleep", lambda seconds: None)
    return tmp_path


class Archives:
    """A portal that answers one archive."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    @contextmanager
    def stream(self, call: Any) -> Any:
        yield self

    def iter_bytes(self, size: int) -> list[bytes]:
        return [self.content]


def files_of(kind: str, names: dict[str, bytes]) -> Any:
    """A session or folder whose archive has these files."""
    file = io.BytesIO()
    if kind == "session":
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in names.items():
                archive.writestr(name, content)
        return SessionFiles(Archives(file.getvalue()), Session("1", "desk"))  # type: ignore[arg-type]
    with tarfile.open(fileobj=file, mode="w") as packed:
        for name, content in names.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            packed.addfile(about, io.BytesIO(content))
    return FolderFiles(Archives(file.getvalue()), Folder("1", "data", files_url="http://x"))  # type: ignore[arg-type]


both = pytest.mark.parametrize("kind", ["session", "folder"])


@both
def test_a_directory_comes_with_the_note_of_what_was_left_out(kind: str, home: Path) -> None:
    got = home / "new" / "got"
    files_of(kind, {"results/a": b"1", "results/deep/b": b"2", NOTE: b"3"}).download_all("out/results/", got)
    assert sorted(one.name for one in got.rglob("*") if one.is_file()) == [NOTE, "a", "b"]
    files_of(kind, {"any": b"1", "deep/b": b"2"}).download_all("", home / "all")
    assert (home / "all/any").exists() and (home / "all/deep/b").exists()


@both
@pytest.mark.parametrize("name", [".bashrc", "results/../.bashrc", "/.bashrc", "./results/a", "other/NOT INCLUDED.txt"])
def test_an_archive_writes_nothing_beside_the_directory_that_was_asked_for(kind: str, name: str, home: Path) -> None:
    with pytest.raises(Problem) as caught:
        files_of(kind, {"results/a": b"1", name: b"evil"}).download_all("results", home / "got")
    assert caught.value.code == "foreign-entry" and not (home / "got").exists()


@both
def test_what_does_not_fit_here_is_not_unpacked(kind: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bai.transfer.shutil.disk_usage", lambda path: Room())
    with pytest.raises(Problem, match="has 12B, and there are 11B free") as caught:
        files_of(kind, {"results/a": b"123456", "results/b": b"123456"}).download_all("results", home / "got")
    assert caught.value.code == "disk-full" and not (home / "got").exists()


class Room:
    free = 11


@both
def test_a_broken_archive_is_a_problem(kind: str, home: Path) -> None:
    files = files_of(kind, {"results/a": b"1"})
    files.portal.content = b"no archive" * 100
    with pytest.raises(Problem) as caught:
        files.download_all("results", home / "got")
    assert caught.value.code == "bad-archive"


@pytest.mark.parametrize("base", ["", "/folders/1"])
def test_an_upload_goes_on_below_the_address_of_the_folder(base: str, home: Path) -> None:
    (home / "big").write_bytes(b"{}")
    begun = (201, None, {"Location": f"{base}/uploads/u1"})
    with stub_portal(begun, (204, None, {"Upload-Offset": "2"})) as stub, Client(stub.url, "secret") as portal:
        FolderFiles(portal, Folder("1", "data", files_url=stub.url + base)).upload(home / "big", "big", overwrite=False)
    assert [f"{one.method} {one.path}" for one in stub.asked] == [
        f"POST {base}/uploads",
        f"PATCH {base}/uploads/u1",
    ]
    assert not list((home / "cache/bai/uploads").iterdir())


def test_a_file_that_becomes_shorter_ends_its_upload(home: Path) -> None:
    (home / "log").write_bytes(b"1" * 10)
    files = FolderFiles(Client("http://x", "secret"), Folder("1", "data", files_url="http://x"))
    with (home / "log").open("rb") as file, pytest.raises(Problem) as caught:
        files._send_part("uploads/u1", file, 10, lambda number: None)
    assert caught.value.code == "file-changed"


def test_a_directory_that_cannot_be_read_ends_its_upload(home: Path) -> None:
    (home / "tree").mkdir()
    with pytest.raises(FileNotFoundError):
        list(_tar_of(home / "gone", "tree"))
    assert list(_tar_of(home / "tree", "tree"))
