"""The document about coverage is true: its tests exist, run at the level that it says, and none is a long one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.groups import ON_REAL_PARTS, ROOT

DOCS = ROOT / "docs"
COVERAGE, GUIDE = DOCS / "coverage.md", DOCS / "user-guide.md"
NEVER_IN_CI = {"long", "gpu"}
Test = ast.FunctionDef | ast.AsyncFunctionDef


def rows() -> list[list[str]]:
    """Return the cells of each row of the tables."""
    lines = [line for line in COVERAGE.read_text().splitlines() if line.startswith("| ")]
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if not line.startswith("| Example")
    ]


@cache
def body_of(path: str) -> list[ast.stmt]:
    return ast.parse((ROOT / path).read_text()).body


def marks_in(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the marks that decorators, or the parts of a ``pytestmark``, give to all that is below."""
    named = (node.func if isinstance(node, ast.Call) else node for node in nodes)
    return {node.attr for node in named if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pytest.mark"}


def marks_below(body: list[ast.stmt]) -> set[str]:
    """Return the marks of the ``pytestmark`` of a module or a class."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            value = node.value
            found |= marks_in(value.elts if isinstance(value, ast.List | ast.Tuple) else [value])
    return found


def marks_of(test: str) -> set[str] | None:
    """Return all marks of a test; None if there is no such test."""
    path, *names = test.split("::")
    if not (ROOT / path).is_file():
        return None
    body, marks = body_of(path), set[str]()
    for name in names:
        marks |= marks_below(body)
        node = next((one for one in body if isinstance(one, Test | ast.ClassDef) and one.name == name), None)
        if node is None:
            return None
        marks |= marks_in(node.decorator_list)
        body = node.body
    return marks if names[-1].startswith("test_") else None


def headings(path: Path) -> Iterator[str]:
    is_code = False
    for line in path.read_text().splitlines():
        is_code ^= line.startswith("```")
        if not is_code and (found := re.match("##+ (.+)", line)):
            yield found[1]


def test_it_has_rows_without_an_empty_cell() -> None:
    assert len(rows()) > 100
    assert [row for row in rows() if len(row) != 3 or not all(row)] == []


def test_each_test_exists_and_runs_at_its_level() -> None:
    wrong = {}
    for _, test, level in rows():
        marks = marks_of(test.strip("`"))
        if marks is None:
            wrong[test] = "there is no such test"
        elif marks & NEVER_IN_CI:
            wrong[test] = f"CI never runs what is marked {', '.join(sorted(marks & NEVER_IN_CI))}"
        elif level != (right := level_of(marks)):
            wrong[test] = f"its level is {right}"
    assert wrong == {}


def level_of(marks: set[str]) -> str:
    """Return the first level of the check that runs a test with these marks, as ``bin/test`` chooses."""
    is_quick = "ci" not in marks and ("core" in marks or not marks & ON_REAL_PARTS)
    return "quick" if is_quick else "ci"


def test_every_heading_of_the_user_guide_has_a_row() -> None:
    _, _, table = COVERAGE.read_text().partition("## User guide")
    there = {
        name for line in table.splitlines() if line.startswith("| **") for name in line.split("**")[1].split(" / ")
    }
    assert sorted(set(headings(GUIDE)) - there) == []
    assert sorted(there - set(headings(GUIDE))) == []
