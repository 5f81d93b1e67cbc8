"""Linters, types and what has to be renewed together: each as one test, for one run and one list of faults."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent

pytestmark = pytest.mark.style


@pytest.mark.parametrize(
    "command",
    [
        [str(BIN / "mypy"), "backendai"],
        ["bin/check-scripts"],
        [str(BIN / "ruff"), "check", "."],
        [str(BIN / "ruff"), "format", "--check", "."],
        [sys.executable, "manage.py", "check"],
        [sys.executable, "manage.py", "makemigrations", "--check", "--dry-run"],
        ["bin/licences", "--check"],
    ],
    ids=["types", "scripts", "ruff", "format", "settings", "migrations", "licences"],
)
def test_nothing_is_found(command: list[str], tmp_path: Path) -> None:
    told = {name: value for name, value in os.environ.items() if not name.startswith(("DATABASE", "DJANGO", "REDIS"))}
    done = subprocess.run(
        command, cwd=ROOT, env=told | {"BACKENDAI_DATA": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
