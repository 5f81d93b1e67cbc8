"""The result of checking one prerequisite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. A ``problem`` prevents a function, a ``warning`` degrades it; both have a fix."""

    name: str
    level: Level
    message: str
    fix: str = ""


def ok(name: str, message: str) -> Check:
    """Return a finding that needs no action."""
    return Check(name, "ok", message)


def warning(name: str, message: str, fix: str) -> Check:
    """Return a finding about something that works less well than it could."""
    return Check(name, "warning", message, fix)


def problem(name: str, message: str, fix: str) -> Check:
    """Return a finding about something that does not work."""
    return Check(name, "problem", message, fix)
