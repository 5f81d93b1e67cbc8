"""Finds the known name that is closest to a mistyped one."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches


def nearest_to(name: str, known: Collection[str]) -> str:
    """Return the closest known name; empty if no name is close."""
    return next(iter(get_close_matches(name, sorted(known), 1)), "")
