"""Which tests run one behind the other in one process, and in which order: by file, but for those that share more."""

from __future__ import annotations

import re
import zlib
from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).resolve().parents[1]
# What a file names if its tests share what takes long to start: the platforms of tests/browser/conftest.py and
# tests/cli/conftest.py, a cluster.
_SHARED = {
    "simulated": r"walk: Visit|campus: Campus",
    "browser": r"browser\.conftest import .*Visit|chromium: Chromium, platform: Platform",
    "kubernetes": r"mark\.kubernetes",
    "cli": r"cli\.conftest import Person",
}
ON_REAL_PARTS = {"browser", "docker", "system", "qemu", "kubernetes"}
_FIRST = ("kubernetes", "browser", "qemu", "system", "docker", "style")  # marks of tests that mostly wait, or take long


class GroupScheduling(LoadScopeScheduling):
    """Hands each group of tests to one process. (pytest-xdist 3.8 ignores its own ``xdist_group`` with pytest 9.2.)"""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid.partition("::")[0])


@cache
def group_of(file: str) -> str:
    """Return the name of the group of a file's tests."""
    text = (ROOT / file).read_text()
    return next((name for name, pattern in _SHARED.items() if re.search(pattern, text)), file)


def urgency(item: pytest.Item) -> int:
    """Return a sort key: tests that wait begin, so that others compute beside them."""
    return next((place for place, mark in enumerate(_FIRST) if item.get_closest_marker(mark)), len(_FIRST))


def is_chosen(item: pytest.Item, today: int) -> bool:
    """Return whether it is this test's turn on the day with this number: every third day for long tests, and for those
    on real parts that are neither core nor an example of docs/coverage.md; always for others."""
    file = item.nodeid.partition("::")[0]
    return not _may_wait(item) or zlib.crc32(file.encode()) % 3 == today % 3


def _may_wait(item: pytest.Item) -> bool:
    marks = {mark.name for mark in item.iter_markers()}
    is_example = item.nodeid.partition("[")[0] in examples()
    return "long" in marks or (bool(marks & ON_REAL_PARTS) and "core" not in marks and not is_example)


@cache
def examples() -> frozenset[str]:
    """Return the tests that docs/coverage.md names."""
    return frozenset(re.findall(r"`(tests/[^`]+::[^`]+)`", (ROOT / "docs" / "coverage.md").read_text()))
