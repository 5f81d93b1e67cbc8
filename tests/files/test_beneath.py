"""Paths that mean harm, by both ways of opening them, and directories that are swapped meanwhile."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from backendai.core import beneath
from backendai.core.beneath import PathRefused
from backendai.core.path_texts import encode_raw
from tests.files.conftest import Portal


@pytest.fixture
def tree(tmp_path: Path, each_way: str) -> Iterator[int]:
    """A directory with links of every kind, beside a secret."""
    (tmp_path / "secret").write_text("secret")
    top = tmp_path / "top"
    (top / "d/e").mkdir(parents=True)
    (top / "d/f").write_text("f")
    for name, target in {
        "d/in": "f",
        "d/e/up": "../f",
        "chain": "d/e/up",
        "dirlink": "d",
        "out": "../secret",
        "out-and-in": "../top/d/f",
        "abs": "/etc/passwd",
        "abs-in": str(top / "d/f"),
        "loop": "loop",
        "ping": "pong",
        "pong": "ping",
        "proc": "/proc/self/root",
        "root": "..",
        "dangling": "nothing",
    }.items():
        (top / name).symlink_to(target)
    for number in range(45):
        (top / f"long{number}").symlink_to(f"long{number + 1}" if number < 44 else "d/f")
    descriptor = os.open(top, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize("path", ["d/f", "d/in", "d/e/up", "chain", "dirlink/f", "dirlink/e/up", "./d//f", "long30"])
def test_links_inside_are_followed_when_reading(tree: int, path: str) -> None:
    descriptor = beneath.open_file(tree, beneath.parse(path), follow=True)
    assert os.read(descriptor, 9) == b"f"
    os.close(descriptor)


@pytest.mark.parametrize(
    "path",
    [
        *("out", "out-and-in", "abs", "abs-in", "loop", "ping", "proc", "proc/etc/passwd", "root", "root/secret"),
        *("dangling", "long0", "d/f/x", "nothing", "d", "dirlink", "."),
    ],
)
def test_what_leads_out_or_nowhere_is_not_opened(tree: int, path: str) -> None:
    with pytest.raises(OSError):
        beneath.open_file(tree, beneath.parse(path), follow=True)


@pytest.mark.parametrize("path", ["d/in", "chain", "dirlink/f", "dirlink", "out", "abs", "root/secret", "dangling"])
def test_no_link_is_followed_when_writing(tree: int, path: str) -> None:
    parts = beneath.parse(path)
    with pytest.raises(OSError):
        beneath.open_file(tree, parts, follow=False)
    with pytest.raises(OSError):
        os.close(beneath.make_directories(tree, (*parts, b"new")))


@pytest.mark.parametrize(
    "path",
    [
        *("/etc/passwd", "//etc", "..", "a/..", "a/../..", "../top", "a/./../b", "nul\0byte", "\ud800", "x" * 256),
        *("a/" * 2500, "/".join("a" * 300)),
    ],
)
def test_paths_that_cannot_be_meant_are_refused_before_anything_is_opened(path: str) -> None:
    with pytest.raises(PathRefused):
        beneath.parse(path)


@pytest.mark.parametrize(
    "path", ["a\nb", "\u202egnp.exe", "...", "..a", "a\\..\\b", " ", "-rf", "~", "$(x)", "ä/日本", "con"]
)
def test_odd_names_are_only_names(path: str) -> None:
    assert b"/".join(beneath.parse(path)) == path.encode()


def test_what_is_no_file_is_never_opened(tmp_path: Path, each_way: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    names = [b"fifo", b"socket"]
    if os.geteuid() == 0:
        os.mknod(tmp_path / "device", 0o020666, os.makedev(1, 3))
        names.append(b"device")
    top = os.open(tmp_path, os.O_RDONLY)
    for name in names:
        with pytest.raises(PathRefused, match="neither a file nor a directory"):
            beneath.open_file(top, (name,), follow=True)
    os.close(top)


def test_no_descriptor_is_left_open(tree: int) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for path in ("d/f", "chain", "out", "loop", "long0", "nothing", "d/f/x", "root/secret", "d"):
        for follow in (True, False):
            with contextlib.suppress(OSError):
                os.close(beneath.open_file(tree, beneath.parse(path), follow=follow))
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_directory_that_is_swapped_for_a_link_leads_nobody_out(tmp_path: Path, each_way: str) -> None:
    top, outside = tmp_path / "top", tmp_path / "outside"
    for folder in (top / "real", top / "other", outside):
        folder.mkdir(parents=True)
        (folder / "f").write_text(folder.name)
    (top / "link").symlink_to("../outside")
    stopped = threading.Event()

    def swap() -> None:
        libc = beneath._LIBC
        directory = os.open(top, os.O_RDONLY)
        while not stopped.is_set():
            libc.renameat2(directory, b"real", directory, b"link", 2)  # RENAME_EXCHANGE
        os.close(directory)

    thread = threading.Thread(target=swap)
    thread.start()
    descriptor, seen, refused = os.open(top, os.O_RDONLY), set(), 0
    until = time.monotonic() + 1
    try:
        while time.monotonic() < until:
            for follow in (True, False):
                try:
                    found = beneath.open_file(descriptor, (b"real", b"f"), follow=follow)
                except OSError:
                    refused += 1
                    continue
                seen.add(os.read(found, 20))
                os.close(found)
            try:
                with beneath.parent_of(descriptor, (b"real", b"g")) as (parent, name):
                    os.close(os.open(name, os.O_WRONLY | os.O_CREAT, dir_fd=parent))
            except OSError:
                refused += 1
    finally:
        stopped.set()
        thread.join()
        os.close(descriptor)
    assert refused, "nothing was swapped while it ran"
    assert seen == {b"real"}
    assert os.listdir(outside) == ["f"]


REFUSED = [
    "/etc/passwd",
    "../meta.json",
    "a/../../meta.json",
    "nul\0",
    "x" * 256,
    "d/" * 2100,
    "abs/passwd",
    "out/meta.json",
]
OPERATIONS = [
    *(("GET", f"/{verb}?{{}}") for verb in ("entries", "entry", "content", "text", "archive")),
    ("GET", "/search?q=x&{}"),
    ("PUT", "/content?overwrite=1&{}"),
    ("PUT", "/text?{}"),
]
BODIES = [
    ("/directories", lambda told: {"path": told}),
    ("/deletions", lambda told: {"paths": [told]}),
    *((verb, lambda told: {"source": told, "target": "new", "overwrite": True}) for verb in ("/moves", "/copies")),
    *((verb, lambda told: {"source": "f", "target": told, "overwrite": True}) for verb in ("/moves", "/copies")),
]


@pytest.mark.asyncio
@pytest.mark.parametrize("path", REFUSED)
async def test_every_operation_refuses_every_hostile_path(portal: Portal, each_way: str, path: str) -> None:
    (portal.data / "f").write_text("f")
    (portal.data / "abs").symlink_to("/etc")
    (portal.data / "out").symlink_to("..")
    before = {name: (portal.data.parent / name).read_bytes() for name in ("meta.json",)}
    for named in (f"path={quote(path, safe='')}", f"raw_path={encode_raw(path.encode())}"):
        for method, where in OPERATIONS:
            headers = {"If-None-Match": "*"} if method == "PUT" else {}
            response = await portal.ask(
                method, where.format(named), headers=headers, **({"data": b"x"} if headers else {})
            )
            assert response.status in (404, 422), (method, where, await response.text())
    for where, body in BODIES:
        response = await portal.ask("POST", where, json=body(path))
        content = await response.json()
        assert response.status in (404, 422) or content == {"items": []}, (where, content)
    assert sorted(os.listdir(portal.data)) == ["abs", "f", "out"]
    assert os.listdir(portal.incoming) == []
    assert {name: (portal.data.parent / name).read_bytes() for name in before} == before


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["a\nb", "\u202egnp.exe", "..a", "a\\b", "%2e%2e", "?&=#", "'\"<b>", "-rf"])
async def test_every_operation_takes_every_odd_name(portal: Portal, each_way: str, name: str) -> None:
    await portal.json("PUT", "/content", 201, params={"path": name}, data=b"x")
    await portal.json("POST", "/moves", json={"source": name, "target": f"{name}2"})
    await portal.json("POST", "/copies", 201, json={"source": f"{name}2", "target": name})
    assert (await portal.json("GET", "/entry", params={"path": name}))["name"] == name
    await portal.json("POST", "/deletions", json={"paths": [name]})
    (item,) = (await portal.json("GET", "/trash"))["items"]
    assert item["path"] == name
    assert os.listdir(portal.data) == [f"{name}2"]
