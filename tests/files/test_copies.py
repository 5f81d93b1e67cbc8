"""Copies of directories that change while they are copied."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from backendai.base.paths import beneath
from backendai.files.entries.changes import copy_tree


def test_what_is_removed_meanwhile_does_not_stop_the_copy(tmp_path: Path, each_way: str) -> None:
    for directory in ("a", "b"):
        for name in ("f", "g"):
            (tmp_path / "s" / directory).mkdir(parents=True, exist_ok=True)
            (tmp_path / "s" / directory / name).write_text(f"{directory}/{name}")
    copied = tmp_path / "t"

    def written(count: int) -> None:
        (first,) = [path for path in copied.rglob("*") if path.is_file()]
        shutil.rmtree(tmp_path / "s" / ("b" if first.parent.name == "a" else "a"))
        (tmp_path / "s" / first.parent.name / ("g" if first.name == "f" else "f")).unlink()

    top = os.open(tmp_path, os.O_RDONLY)
    copy_tree(top, b"s", top, b"t", written=written)
    os.close(top)
    (file,) = [path for path in copied.rglob("*") if path.is_file()]
    assert file.read_text() == str(file.relative_to(copied))
    assert sorted(os.listdir(copied)) == ["a", "b"]


def test_the_directories_of_many_files_are_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s").mkdir()
    for number in range(100):
        (tmp_path / "s" / str(number)).write_text("x")
    opened: list[beneath.Parts] = []
    real = beneath.open_directory
    count = lambda top, parts, *, follow: (opened.append(parts), real(top, parts, follow=follow))[1]  # noqa: E731
    monkeypatch.setattr(beneath, "open_directory", count)
    top = os.open(tmp_path, os.O_RDONLY)
    copy_tree(top, b"s", top, b"t", written=lambda _: None)
    os.close(top)
    assert len(os.listdir(tmp_path / "t")) == 100
    assert opened == [(b"s",), (b"t",), (b"t",)]  # the last time for its own time and mode
