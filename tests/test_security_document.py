"""The table of requirements in docs/security.md names code and tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
_TEXT = (ROOT / "docs" / "security.md").read_text()
_SECTION = _TEXT[_TEXT.index("\n## Requirements\n") :].partition("\n## What is not there yet\n")[0]
_ROWS = [
    [cell.strip() for cell in line.strip("| ").split("|")]
    for line in _SECTION.splitlines()
    if line.startswith("| ") and not line.startswith("| Requirement |")
]


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row[0][:40])
def test_a_requirement_names_its_code_and_its_tests(row: list[str]) -> None:
    _, places, tests = row
    named = re.findall(r"`([\w/.-]+)`", tests)
    assert named
    assert [name for name in named if not (ROOT / "tests" / name).is_file()] == []
    code = [name for name in re.findall(r"`([\w/.-]+)`", places) if "/" in name or name.endswith(".py")]
    assert [name for name in code if not any((folder / name).exists() for folder in (ROOT, ROOT / "backendai"))] == []


def test_there_are_as_many_rows_as_the_document_shows() -> None:
    assert len(_ROWS) == len(re.findall(r"^\| (?!Requirement)", _SECTION, re.MULTILINE)) >= 40
