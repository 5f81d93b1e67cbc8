"""What was probably meant by a name that there is not."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches


def nearest_to(name: str, known: Collection[str]) -> str:
    """Return the known name that was probably meant; empty where none is near."""
    return next(iter(get_close_matches(name, sorted(known), 1)), "")
