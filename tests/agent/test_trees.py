"""Folders as people leave them behind."""

from __future__ import annotations

import os
from pathlib import Path

from backendai.agent.backends.shared.trees import bytes_under, make_removable, remove_tree

_DEEPER_THAN_ANY_STACK = 3000


def nest(folder: Path, depth: int) -> None:
    """Make folders in folders; the path gets longer than any call takes, so it is walked."""
    here = os.open(folder, os.O_PATH)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_PATH, dir_fd=here)
        os.close(here)
        here = below
    file = os.open("full", os.O_WRONLY | os.O_CREAT, dir_fd=here)
    os.write(file, b"x" * 2**20)
    for descriptor in (file, here):
        os.close(descriptor)


def test_it_measures_and_removes_however_deep_somebody_nests(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    nest(folder, _DEEPER_THAN_ANY_STACK)
    assert bytes_under(folder) >= 2**20
    remove_tree(folder)
    assert not folder.exists()


def test_it_follows_no_link(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "home"
    for made in (outside, folder):
        made.mkdir()
    (outside / "kept").write_bytes(b"x" * 2**20)
    outside.chmod(0o500)
    (folder / "link").symlink_to(outside)
    assert bytes_under(folder) < 2**20
    make_removable(folder)
    remove_tree(folder)
    assert (outside / "kept").exists()
    assert outside.stat().st_mode & 0o777 == 0o500


def test_it_finds_nothing_wrong_with_what_is_gone(tmp_path: Path) -> None:
    remove_tree(tmp_path / "gone")
    assert bytes_under(tmp_path / "gone") == 0
