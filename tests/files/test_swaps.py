"""Directories that another process swaps for links while they are opened, written, copied and deleted."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from backendai.base.paths import beneath
from backendai.files.entries.changes import copy_tree
from backendai.files.folders.removal import remove_tree

_EXCHANGE = 2
_SWAPPED = ((b"top", b"real", b"link"), (b"top/deep/er", b"real", b"link"))


def swap(top: Path) -> None:
    """Exchange directories and links for ever, as fast as Linux can."""
    places = [(os.open(os.fsencode(top) + b"/" + where, os.O_RDONLY), one, other) for where, one, other in _SWAPPED]
    while True:
        for directory, one, other in places:
            beneath._LIBC.renameat2(directory, one, directory, other, _EXCHANGE)


@contextmanager
def swapping(top: Path) -> Iterator[None]:
    process = multiprocessing.get_context("fork").Process(target=swap, args=(top,), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


class Race:
    """Opens, writes, copies and deletes what is swapped; counts what was opened and what was refused."""

    def __init__(self, top: int) -> None:
        self.top = top
        self.opened = self.refused = 0
        self.seen: set[bytes] = set()

    def turn(self) -> None:
        for parts in ((b"real", b"f"), (b"deep", b"er", b"real", b"f")):
            for follow in (True, False):
                self._try(self._read, parts, follow)
            self._try(self._create, (*parts[:-1], b"new"))
            self._try(self._make_directories, (*parts[:-1], b"more", b"yet"))
        self._try(self._copy)
        self._try(lambda: remove_tree(self.top, b"copy"))

    def _try(self, work: Callable[..., None], *told: object) -> None:
        try:
            work(*told)
            self.opened += 1
        except OSError:
            self.refused += 1

    def _read(self, parts: beneath.Parts, follow: bool) -> None:
        found = beneath.open_file(self.top, parts, follow=follow)
        self.seen.add(os.read(found, 20))
        os.close(found)

    def _create(self, parts: beneath.Parts) -> None:
        with beneath.parent_of(self.top, parts) as (parent, name):
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, dir_fd=parent))

    def _make_directories(self, parts: beneath.Parts) -> None:
        os.close(beneath.make_directories(self.top, parts))

    def _copy(self) -> None:
        copy_tree(self.top, b"real", self.top, b"copy", written=lambda count: None)
        with suppress(FileNotFoundError):
            found = beneath.open_file(self.top, (b"copy", b"f"), follow=False)
            self.seen.add(os.read(found, 20))
            os.close(found)


@pytest.mark.parametrize(
    ("seconds", "least"), [(1, 0), pytest.param(60, 1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
def test_what_is_swapped_for_a_link_leads_nobody_out(tmp_path: Path, each_way: str, seconds: float, least: int) -> None:
    top, outside = tmp_path / "top", tmp_path / "outside"
    for folder in (top / "real", top / "deep/er/real", outside):
        folder.mkdir(parents=True)
        (folder / "f").write_text(folder.name)
    (top / "link").symlink_to("../outside")
    (top / "deep/er/link").symlink_to(outside)
    race, until = Race(os.open(top, os.O_RDONLY)), time.monotonic() + seconds
    with swapping(tmp_path):
        while time.monotonic() < until or race.opened + race.refused < least or not race.refused:
            race.turn()
    os.close(race.top)
    print(f"{race.opened} opened, {race.refused} refused")  # noqa: T201
    assert race.seen == {b"real"}
    assert os.listdir(outside) == ["f"] and (outside / "f").read_text() == "outside"
