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
        [str(BIN / "mypy"), "backendai", "cli/bai"],
        ["bin/check-scripts"],
        [str(BIN / "ruff"), "check", "."],
        [str(BIN / "ruff"), "format", "--check", "."],
        [str(BIN / "djangofmt"), "--check", "templates"],
        [sys.executable, "manage.py", "check"],
        [sys.executable, "manage.py", "makemigrations", "--check", "--dry-run"],
        ["bin/licences", "--check"],
    ],
    ids=["types", "scripts", "ruff", "format", "templates", "settings", "migrations", "licences"],
)
def test_nothing_is_found(command: list[str], tmp_path: Path) -> None:
    told = {name: value for name, value in os.environ.items() if not name.startswith(("DATABASE", "DJANGO", "REDIS"))}
    done = subprocess.run(
        command, cwd=ROOT, env=told | {"BACKENDAI_DATA": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.ci
def test_the_documents_are_a_site_without_a_broken_link(tmp_path: Path) -> None:
    build = [str(BIN / "sphinx-build"), "-q", "-W", "--keep-going", "-b", "html", "docs", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "BACKENDAI_DATA" in (tmp_path / "reference" / "settings.html").read_text()


def test_no_line_of_a_template_is_longer_than_200_characters() -> None:
    """The formatter breaks no tag of Django, which has to be on one line: give parts a name (``with``, ``as``)."""
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / "templates").rglob("*"))
        if path.suffix in (".html", ".txt")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > 200
    ]
    assert not long
