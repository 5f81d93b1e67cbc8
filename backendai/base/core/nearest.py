"""Finds the known name that is closest to a mistyped one, and refuses the mistyped one."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import Any

from backendai.base.core.messages import Message

_LONGEST, _MOST_NAMED = 64, 20


def nearest_to(name: str, known: Collection[str]) -> str:
    """Return the closest known name; empty if no name is close."""
    return next(iter(get_close_matches(name, sorted(known), 1)), "")


def unknown(kind: str, name: str, known: Collection[str], near: str = "") -> Message:
    """Return the sentence that refuses a name, with the known names and the closest. ``kind``: what it should name.
    ``near``: a name that is meant more likely than the closest one."""
    values: dict[str, Any] = {
        "kind": kind,
        "name": name[:_LONGEST],
        "known": sorted(known)[:_MOST_NAMED] or Message("none"),
    }
    if near := near or nearest_to(name, known):
        return Message("Unknown {kind} {name}. Known: {known}. Did you mean {near}?", near=near, **values)
    return Message("Unknown {kind} {name}. Known: {known}.", **values)
