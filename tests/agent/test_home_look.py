"""The look into a home folder: what is counted, and that it has an end whatever its user made of the folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest

from backendai.agent.backends.docker.disk.scratch import Scratch, look_at_home
from backendai.agent.backends.shared.trees import remove_tree
from backendai.base.wire.usage import HomeLook

KIB = 1024


def write(path: Path, kibibytes: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(kibibytes * KIB))


def test_it_tells_packages_from_other_files_and_leaves_the_cache_out(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    assert look_at_home(home) == HomeLook(home_bytes=0, pip_bytes=0, packages=0, complete=True)
    packages = home / ".local/lib/python3.11/site-packages"
    write(packages / "numpy/core.so", 64)
    for name in ("numpy-2.4.6.dist-info", "six-1.17.0.dist-info"):
        write(packages / name / "METADATA", 4)
    write(home / "data/train.bin", 256)
    write(home / ".local/share/jupyter/runtime", 8)
    write(home / ".cache/pip/wheel", 512)
    assert look_at_home(home) == HomeLook(home_bytes=264 * KIB, pip_bytes=72 * KIB, packages=2, complete=True)


def test_it_follows_no_link_and_counts_what_lies_on_the_disk(tmp_path: Path) -> None:
    write(tmp_path / "foreign/secret", 64)
    home = tmp_path / "home"
    home.mkdir()
    (home / "link").symlink_to(tmp_path / "foreign")
    (home / "file").symlink_to(tmp_path / "foreign/secret")
    with (home / "sparse").open("wb") as sparse:
        sparse.truncate(2**40)
    os.mkfifo(home / "pipe")
    assert look_at_home(home) == HomeLook(home_bytes=0, pip_bytes=0, packages=0, complete=True)


def test_it_ends_in_a_folder_that_is_too_deep_or_too_full(tmp_path: Path) -> None:
    write(tmp_path / "first", 4)
    deep = os.open(tmp_path, os.O_RDONLY)
    for _ in range(sys.getrecursionlimit() + 200):
        os.mkdir("d", dir_fd=deep)
        below = os.open("d", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(deep)
    found = look_at_home(tmp_path)
    remove_tree(tmp_path / "d")  # pytest itself cannot
    assert (found.home_bytes, found.complete) == (4 * KIB, False)
    for number in range(30):
        write(tmp_path / f"folder-{number}/file", 4)
    assert not look_at_home(tmp_path, entries=20).complete
    assert not look_at_home(tmp_path, seconds=-1).complete


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        look_at_home(tmp_path / "home")


def test_the_disk_is_measured_where_a_kernel_has_one_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel_id, scratch = uuid4(), Scratch(tmp_path, None)
    write(tmp_path / str(kernel_id) / "home" / "file", 4)
    plain = scratch.look(kernel_id)
    assert plain is not None and (plain.disk_used, plain.disk_limit) == (None, None)
    monkeypatch.setattr(Path, "is_mount", lambda path: path.name == str(kernel_id))
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_blocks=100, f_bfree=75, f_frsize=4096))
    own = scratch.look(kernel_id)
    assert own is not None and (own.disk_used, own.disk_limit) == (25 * 4096, 100 * 4096)
    assert own.home_bytes == 4 * KIB
    assert scratch.look(uuid4()) is None
