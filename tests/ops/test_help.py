"""``bin/up --help`` is for people who have not decided yet: it installs, makes and needs nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def files_of(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.parametrize("words", [["--help"], ["--port", "8500", "-h"]])
def test_the_help_of_a_fresh_clone_needs_no_package_and_writes_nothing(tmp_path: Path, words: list[str]) -> None:
    clone, programs = tmp_path / "clone", tmp_path / "programs"
    no_cache = shutil.ignore_patterns("__pycache__")
    for name in ("backendai", "bin"):
        shutil.copytree(ROOT / name, clone / name, ignore=no_cache)
    programs.mkdir()
    # An interpreter without packages, whatever this machine has installed.
    (programs / "python3").write_text(f'#!/bin/sh\nexec {sys._base_executable} -S "$@"\n')  # type: ignore[attr-defined]
    (programs / "python3").chmod(0o755)
    before = files_of(tmp_path)
    done = subprocess.run(
        [clone / "bin" / "up", *words], env={"PATH": f"{programs}:/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: bin/up" in done.stdout and "--no-agent" in done.stdout
    assert files_of(tmp_path) == before
