"""Which tests run one behind the other in one process, and in which order: by file, but for those that share more."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

_BROWSER = Path(__file__).parent / "browser"
_FIRST = ("browser", "kubernetes", "qemu", "system", "docker", "style")  # marks of tests that mostly wait, or take long


def group_of(item: pytest.Item) -> str:
    """Return the name of the group of a test."""
    names = getattr(item, "fixturenames", ())
    if item.path.is_relative_to(_BROWSER):
        if "campus" in names:
            return "browser-simulated"
        if "platform" in names:
            return "browser-containers"
    if item.get_closest_marker("kubernetes"):
        return "kubernetes"  # there is one cluster
    return str(item.path.relative_to(item.config.rootpath).with_suffix(""))


def urgency(item: pytest.Item) -> int:
    """Return a sort key: tests that wait begin, so that others compute beside them."""
    return next((place for place, mark in enumerate(_FIRST) if item.get_closest_marker(mark)), len(_FIRST))


def is_chosen(item: pytest.Item, today: int) -> bool:
    """Return whether it is this test's turn on the day with this number: always, or for long ones every third day."""
    return not item.get_closest_marker("long") or zlib.crc32(group_of(item).encode()) % 3 == today % 3
