"""Sequence ``lifo``: last in, first out."""

from __future__ import annotations

from backendai.base.core.messages import Message
from backendai.scheduler.sequence import Line, Sequence
from backendai.scheduler.snapshot import SessionView


def lifo(line: Line) -> list[SessionView]:
    """Return the newest session first; of sessions of the same time, the one with the greatest id."""
    return line.sessions[::-1]


SEQUENCE = Sequence("lifo", Message("last in, first out"), lifo)
