"""How much a test tries: with ``bin/test --all`` all random examples, else a quarter of them; ``bin/test`` alone takes
some cases of a long list, and ``--ci`` takes all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

LONG = os.environ.get("BACKENDAI_TEST_LONG") == "1"


def examples(number: int) -> int:
    """Return how many of this number of examples are tried now."""
    return number if LONG else max(10, number // 4)


def some(names: Any, cases: Iterable[Any], number: int = 3, **options: Any) -> pytest.MarkDecorator:
    """Return ``parametrize`` with this number of the cases, from the first to the last, for each check, and the others
    for ``--ci``."""
    rows = list(cases)
    last = len(rows) - 1
    chosen = {round(place * last / max(1, number - 1)) for place in range(number)}
    told = [row if at in chosen else _in_ci(row) for at, row in enumerate(rows)]
    return pytest.mark.parametrize(names, told, **options)


def _in_ci(row: Any) -> Any:
    return pytest.param(*(row if isinstance(row, tuple) else (row,)), marks=pytest.mark.ci)
