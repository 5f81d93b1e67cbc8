"""The table of requirements in docs/security.md names code and tests that are there."""

from __future__ import annotations

import importlib
import re
from datetime import timedelta
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


_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "s": 1, "h": 3600, "days": 86400}
_INPUTS = _TEXT[_TEXT.index("\n### Inputs and their limits\n") :].partition("\n## ")[0]
_LIMITS = re.findall(r"(\d[\d,]*)((?: [A-Za-z-]+)*) \(`([\w/]+)\.py:(\w+)`\)", _INPUTS)


@pytest.mark.parametrize(("number", "words", "module", "name"), _LIMITS, ids=lambda text: text[:30])
def test_a_limit_of_an_input_is_that_of_the_code(number: str, words: str, module: str, name: str) -> None:
    found = getattr(importlib.import_module(f"backendai.{module.replace('/', '.')}"), name)
    value = found.total_seconds() if isinstance(found, timedelta) else found
    assert int(number.replace(",", "")) * _UNITS.get(words.strip(), 1) == value


def test_every_row_of_inputs_has_limits_and_every_constant_its_number() -> None:
    rows = [line for line in _INPUTS.splitlines() if line.startswith("| ") and not line.startswith("| Input")]
    assert len(rows) >= 30 and [row[:40] for row in rows if not re.search(r"\(`[\w/]+\.py:\w+`\)", row)] == []
    assert len(_LIMITS) == len(re.findall(r"\.py:\w+`\)", _INPUTS))
