"""Fixtures for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cast import Cast, make_cast


@pytest.fixture
def cast(db: None) -> Cast:
    """Alice, Bob, Charlie and Dana."""
    return make_cast()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a mark by which ``bin/test`` would not find the file: it looks for those that name it."""
    for mark in ("browser", "docker", "system"):
        marked = {item.path for item in items if item.get_closest_marker(mark)}
        if hidden := [str(path) for path in marked if f"mark.{mark}" not in Path(path).read_text()]:
            raise pytest.UsageError(f"bin/test would not see the tests that are marked {mark!r} in {', '.join(hidden)}")
