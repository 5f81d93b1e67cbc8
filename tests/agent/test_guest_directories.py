"""Directories of a home folder, as the guest agent lists and changes them."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import shutil
import socket
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from backendai.agent.guest.home import contents, directories, zipping
from backendai.agent.guest.home import contents as files
from backendai.agent.guest.home.contents import FileRefused


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.setenv("HOME", str(place))
    return place


def names(**order: Any) -> list[str]:
    return [one["name"] for one in directories.entries(order)["entries"]]


def refusal(work: Any, *args: Any) -> str:
    try:
        work(*args)
    except FileRefused as error:
        return error.code
    except OSError as error:
        return files.refused(error).code
    raise AssertionError("nothing was refused")


NOTE = "NOT INCLUDED.txt"


def put(order: dict[str, Any], content: bytes) -> dict[str, Any]:
    async def walk() -> dict[str, Any]:
        reader = asyncio.StreamReader()
        reader.feed_data(struct.pack("!I", len(content)) + content + bytes(4))
        return await files.put(order, reader)

    return asyncio.run(walk())


def unzip(paths: list[str]) -> dict[str, bytes]:
    class Writer:
        sent = b""

        def write(self, data: bytes) -> None:
            self.sent += data

        async def drain(self) -> None:
            return

    writer = Writer()
    asyncio.run(zipping.send_zip({"paths": paths}, writer))  # type: ignore[arg-type]
    _, _, framed = writer.sent.partition(b"\n")
    content = b""
    while length := struct.unpack("!I", framed[:4])[0]:
        content, framed = content + framed[4 : 4 + length], framed[4 + length :]
    assert framed == bytes(4)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_pages_follow_each_other_in_every_order(home: Path) -> None:
    for number in range(7):
        (home / f"f{number}").write_bytes(b"x" * (10 - number))
        os.utime(home / f"f{number}", (number, number))
    (home / "z").mkdir()
    for sort in ("name", "size", "mtime"):
        for order in ("asc", "desc"):
            after, seen = None, []
            for _ in range(3):
                page = directories.entries({"sort": sort, "order": order, "limit": 3, "after": after})
                assert (page["total"], page["sorted"]) == (8, True)
                seen += [one["name"] for one in page["entries"]]
                after = page["next"]
            upwards = sort != "size" if order == "asc" else sort == "size"
            expected = [f"f{number}" for number in range(7)]
            assert (seen, after) == (["z", *(expected if upwards else expected[::-1])], None)


def test_odd_cursors_and_paths_are_refused(home: Path) -> None:
    (home / "a").touch()
    (home / "b").touch()
    cursor = directories.entries({"limit": 1})["next"]
    for order in ({"after": "?"}, {"after": "bnVsbA"}, {"after": cursor, "sort": "size"}):
        assert refusal(directories.entries, order) == "bad-cursor"
    for path in ("../x", "a/../../x", "a\0b", "x" * 5000, "//raw:?", "//raw:Li4", "\ud800"):
        assert refusal(directories.entry, {"path": path}) == "bad-path"
    assert refusal(directories.entries, {"path": "none"}) == "no-such-file"
    assert refusal(directories.remove, {"paths": [""]}) == "bad-path"
    assert refusal(directories.remove, {"paths": "a"}) == "bad-path"


def test_names_that_are_not_utf8_are_told_and_taken_exactly(home: Path) -> None:
    Path(os.fsdecode(os.fsencode(home) + b"/caf\xe9")).write_text("x")
    (home / 'a\n"<b>\u202e').touch()
    listed = {one["name"]: one for one in directories.entries({})["entries"]}
    raw = "//raw:" + listed["caf\ufffd"]["raw"]
    assert directories.entry({"path": raw})["size"] == 1
    assert directories.move({"source": raw, "target": "café"})["name"] == "café"
    assert directories.remove({"paths": ['a\n"<b>\u202e', "café"]}) == {"deleted": 2}
    assert names() == []


def test_nothing_is_replaced_and_no_directory_goes_into_itself(home: Path) -> None:
    (home / "a/b").mkdir(parents=True)
    (home / "c").write_text("c")
    assert refusal(directories.make_directory, {"path": "a"}) == "exists"
    assert refusal(directories.move, {"source": "c", "target": "a"}) == "exists"
    assert refusal(directories.move, {"source": "a", "target": "a/b/c"}) == "inside-itself"
    assert refusal(directories.move, {"source": "gone", "target": "x"}) == "no-such-file"
    assert directories.move({"source": "c", "target": "a/b/c"})["size"] == 1


def test_deleting_a_link_leaves_what_it_points_to(home: Path) -> None:
    (home.parent / "kept").mkdir()
    (home.parent / "kept/file").touch()
    (home / "link").symlink_to(home.parent / "kept")
    (home / "d").mkdir()
    (home / "d/link").symlink_to(home.parent / "kept")
    assert directories.entries({})["entries"][1]["target"].endswith("/kept")
    assert directories.remove({"paths": ["link", "gone", "d"]}) == {"deleted": 2}
    assert refusal(directories.remove, {"paths": ["gone"]}) == "no-such-file"
    assert names() == [] and (home.parent / "kept/file").exists()


def test_a_directory_from_which_a_program_deletes_meanwhile_is_deleted_whole(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "d").mkdir()
    for name in ("a", "b", "c"):
        (home / "d" / name).touch()
    real, calls = shutil.rmtree, list[str]()

    def interrupted(place: Path) -> None:
        calls.append(str(place))
        if len(calls) == 1:
            (place / "a").unlink()
            raise FileNotFoundError(place / "a")
        real(place)

    monkeypatch.setattr(directories.shutil, "rmtree", interrupted)
    assert directories.remove({"paths": ["d"]}) == {"deleted": 1}
    assert not (home / "d").exists() and len(calls) == 2


def test_a_mounted_folder_is_neither_deleted_nor_moved_nor_packed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, point = home.parent / "mountinfo", home.resolve() / "d/my data"
    point.mkdir(parents=True)
    (point / "precious").write_text("x")
    (home / "d/own").write_text("y")
    table.write_text(f"1 2 0:1 / {str(point).replace(' ', chr(92) + '040')} rw - ext4 /dev/x rw\n")
    monkeypatch.setattr(contents, "_MOUNTINFO", str(table))
    for path in ("d", "d/my data"):
        assert refusal(directories.remove, {"paths": [path]}) == "mounted"
        assert refusal(directories.move, {"source": path, "target": "e"}) == "mounted"
    assert (point / "precious").exists()
    found = unzip([""])
    assert set(found) == {"d/", "d/own", NOTE} and b"d/my data: a mounted folder" in found[NOTE]
    assert unzip(["d/my data"])["my data/precious"] == b"x"
    assert directories.remove({"paths": ["d/my data/precious"]}) == {"deleted": 1}


def test_an_archive_has_files_and_directories_and_says_what_is_missing(home: Path) -> None:
    (home / "d/empty").mkdir(parents=True)
    (home / "d/a.bin").write_bytes(os.urandom(600_000))
    (home / "d/link").symlink_to("a.bin")
    os.mkfifo(home / "d/pipe")
    found = unzip(["d"])
    assert set(found) == {"d/", "d/empty/", "d/a.bin", NOTE}
    assert sorted(found[NOTE].decode().splitlines()[1:]) == ["d/link: a link", "d/pipe: a device, pipe or socket"]
    assert found["d/a.bin"] == (home / "d/a.bin").read_bytes()
    assert set(unzip(["d/a.bin", "d/empty"])) == {"a.bin", "empty/"}


def test_directories_without_write_permission_are_deleted_with_their_contents(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "go/mod@v1/sub").mkdir(parents=True)
    (home / "go/mod@v1/sub/f").touch()
    for path in (home / "go/mod@v1/sub", home / "go/mod@v1"):
        path.chmod(0o555)
    real = shutil.rmtree

    def remove(place: Path) -> None:
        if not all(path.stat().st_mode & 0o200 for path in (place, *place.rglob("*")) if path.is_dir()):
            raise PermissionError(errno.EACCES, "Permission denied")  # root would be let in
        real(place)

    monkeypatch.setattr(directories.shutil, "rmtree", remove)
    assert directories.remove({"paths": ["go"]}) == {"deleted": 1}
    assert list(home.iterdir()) == []
    monkeypatch.setattr(directories, "_opened_up", lambda place: False)
    (home / "other").mkdir(0o555)
    assert refusal(directories.remove, {"paths": ["other"]}) == "not-permitted"


def test_odd_dates_and_equal_names_spoil_no_archive(home: Path) -> None:
    for name in ("z/future", "z/past", "y/z/other"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(name)
    os.utime(home / "z/future", (5 * 10**9,) * 2)
    os.utime(home / "z/past", (-(10**9),) * 2)
    found = unzip(["z", "y/z", "z"])
    assert set(found) == {"z/", "z/future", "z/past", "z (2)/", "z (2)/other"}


@pytest.mark.parametrize(
    ("order", "code"),
    [
        ({"path": "a.bin", "if_none_match": True}, "exists"),
        ({"path": "../a.bin"}, "bad-path"),
        ({"path": "a.bin/b"}, "exists"),
        ({"path": "full.bin"}, "disk-full"),
    ],
)
def test_the_refusal_of_a_large_file_arrives(
    home: Path, monkeypatch: pytest.MonkeyPatch, order: dict[str, Any], code: str
) -> None:
    (home / "a.bin").write_bytes(b"one")
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(Path, "open", _open_on_a_full_disk)

    async def refuse() -> None:
        reader, writer = await asyncio.open_connection(sock=theirs)
        with pytest.raises(FileRefused) as refusal:
            await files.put(order, reader)
        writer.write(refusal.value.code.encode())
        writer.close()
        await writer.wait_closed()

    async def walk() -> bytes:
        reader, writer = await asyncio.open_connection(sock=ours)
        refusing = asyncio.create_task(refuse())
        writer.write((struct.pack("!I", 2**18) + bytes(2**18)) * 4 + bytes(4))
        await writer.drain()
        await refusing
        return await reader.read()

    assert asyncio.run(walk()) == code.encode()
    assert names() == ["a.bin"]


def _open_on_a_full_disk(path: Path, mode: str) -> Any:
    class Full(io.FileIO):
        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, "full")

    return Full(path, mode.replace("b", ""))


def test_a_file_that_changed_meanwhile_is_not_written_over(home: Path) -> None:
    first = put({"path": "a.sh", "if_none_match": True}, b"one")
    (home / "a.sh").chmod(0o750)
    assert refusal(put, {"path": "a.sh", "if_none_match": True}, b"two") == "exists"
    etag = put({"path": "a.sh", "if_match": first["etag"]}, b"two")["etag"]
    assert refusal(put, {"path": "a.sh", "if_match": first["etag"]}, b"three") == "changed"
    assert (home / "a.sh").read_bytes() == b"two" and (home / "a.sh").stat().st_mode & 0o777 == 0o750
    (home / "a.sh").unlink()
    assert refusal(put, {"path": "a.sh", "if_match": etag}, b"four") == "changed"
    assert names() == []


def test_a_file_that_is_sent_again_after_a_lost_answer_is_there_once(home: Path) -> None:
    first = put({"path": "a.txt", "if_none_match": True}, b"one")
    again = {"path": "a.txt", "if_none_match": True, "resent": True}
    assert put(again, b"one") == first
    assert refusal(put, again, b"two") == "exists", "another file has taken the name"
    assert (home / "a.txt").read_bytes() == b"one" and names() == ["a.txt"]
    assert put(again | {"path": "b.txt"}, b"two")["size"] == 3


def test_a_search_goes_down_and_through_no_link(home: Path) -> None:
    (home / "x/deep").mkdir(parents=True)
    (home / "x/deep/Report.txt").touch()
    (home / "loop").symlink_to(home)
    found = directories.search({"q": "report"})
    assert ([one["path"] for one in found["entries"]], found["complete"]) == (["x/deep/Report.txt"], True)


def test_a_list_of_very_many_is_by_name_only(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        (home / str(number)).touch()
    monkeypatch.setattr(directories, "MOST_SORTED", 4)
    assert directories.entries({"sort": "size"})["sorted"] is False
    monkeypatch.setattr(directories, "MOST_NAMES", 3)
    page = directories.entries({})
    assert (page["total"], page["sorted"]) == (3, False)
