"""What the kinds of sessions can do: the table that people are told."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from backendai.base.core.session_kinds import KINDS, USUAL_KIND, SessionKind, kinds_with

ARCHITECTURE = Path(__file__).resolve().parent.parent.parent / "docs" / "architecture.md"
# the columns of the product's documents: code execution, service ports, dependencies, result, clustering. There a
# system session has ports and several kernels; here files alone are reached in it, so it has neither.
FEATURES = ("executes_code", "has_services", "has_dependencies", "has_result", "clusters")
TOLD = {
    "interactive": (True, True, False, False, True),
    "batch": (False, True, True, True, True),
    "inference": (False, True, False, False, True),
    "system": (False, False, False, False, False),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_each_kind_offers_what_the_product_says(kind: SessionKind) -> None:
    assert tuple(getattr(kind, feature) for feature in FEATURES) == TOLD[kind.name]


def test_a_launch_that_names_no_type_is_one_that_people_work_in() -> None:
    assert USUAL_KIND.is_worked_in and USUAL_KIND.is_launched
    assert set(kinds_with("is_usually_checked")) <= set(kinds_with("is_checked"))


def test_the_documentation_has_the_same_table() -> None:
    text = ARCHITECTURE.read_text().partition("## Kinds of sessions")[2].partition("\n## ")[0]
    [head, _, *rows] = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in head[1:]] == list(KINDS)
    told = {row[0].split("`")[1]: [cell.strip() for cell in row[1:]] for row in rows}
    assert set(told) == {field.name for field in fields(SessionKind)} - {"name"}
    for column, cells in told.items():
        values = [getattr(kind, column) for kind in KINDS.values()]
        assert cells == [{True: "✓", False: "–"}[value] if isinstance(value, bool) else value.value for value in values]
