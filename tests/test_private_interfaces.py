"""The table of private interfaces in ``docs/dependencies.md`` names all of them, and libraries still have each."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
_CODE = re.compile(r"`([^`]+)`")
_OF_OTHERS = re.compile(r"(?<!self)(?<!cls)(?<!super\(\))\.(_[a-z]\w*)")
_OURS = re.compile(r"(?:def |class |self\.|cls\.)(_[a-z]\w*)|\b(_[a-z]\w*)(?:: [^=\n]+)? = ", re.M)
_INTERNAL = re.compile(r"^from (\w+(?:\.\w+)*\.internal[.\w]*) import (.+)$", re.M)
# Documented by Django, Python and named tuples, in spite of their names; and of ipykernel, which is in images only.
_DOCUMENTED = {"_meta", "_state", "_default_manager", "_base_manager", "_exit", "_fields", "_make", "_replace"}


class Row(NamedTuple):
    library: str
    version: str
    names: list[str]
    files: list[str]


def _rows() -> list[Row]:
    table = (ROOT / "docs/dependencies.md").read_text().partition("## Private interfaces in use")[2]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "| `" in line]
    return [
        Row(library, version, _CODE.findall(names), _CODE.findall(files)) for library, version, names, files, _ in cells
    ]


ROWS = _rows()
NAMES = {name for row in ROWS for name in row.names}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_library_has_the_name(name: str) -> None:
    module, _, path = name.partition(":")
    found = importlib.import_module(module)
    *owners, last = path.split(".")
    for owner in owners:
        found = getattr(found, owner)
    assert hasattr(found, last) or last in _words_of(found), f"{module} has it no longer"


def _words_of(found: Any) -> set[str]:
    """Return the words in the source of a function, or of a class and its parents of the same library: most attributes
    are set there."""
    library = found.__module__.partition(".")[0]
    parts = [part for part in getattr(found, "__mro__", (found,)) if part.__module__.partition(".")[0] == library]
    return {word for part in parts for word in re.findall(r"\w+", inspect.getsource(part))}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.library}-{row.files[0]}")
def test_our_files_use_the_names(row: Row) -> None:
    sources = [(ROOT / "backendai" / file).read_text() for file in row.files]
    wanted = {re.split(r"[:.]", name)[-1] for name in row.names}
    used = [{word for word in wanted if re.search(rf"\b{word}\b", source)} for source in sources]
    assert set().union(*used) == wanted and all(used)


def test_each_name_was_read_in_the_pinned_version() -> None:
    pins = dict(re.findall(r"^([\w-]+)==([\w.]+)", (ROOT / "requirements.txt").read_text(), re.M))
    told = {row.library: row.version for row in ROWS if row.library != "Python"}
    assert told == {name: pins[name.lower()] for name in told}, "read these names in the new version"
    assert len({(row.library, row.version) for row in ROWS}) == len(told) + 1


def test_the_table_has_every_private_name_of_a_library() -> None:
    sources = [path.read_text() for path in sorted((ROOT / "backendai").rglob("*.py"))]
    ours = {name for source in sources for pair in _OURS.findall(source) for name in pair}
    known = ours | _DOCUMENTED | {re.split(r"[:.]", name)[-1] for name in NAMES}
    assert {name for source in sources for name in _OF_OTHERS.findall(source)} <= known
    internal = {
        f"{module}:{name.strip()}"
        for source in sources
        for module, names in _INTERNAL.findall(source)
        for name in names.split(",")
    }
    modules = {name.partition(":")[0] for name in NAMES}
    assert {one for one in internal if one not in NAMES and one.replace(":", ".") not in modules} == set()
