"""Links, malformed paths and entries that are no files, by both ways of opening paths."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from backendai.base.paths import beneath
from backendai.base.paths.beneath import PathRefused


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
