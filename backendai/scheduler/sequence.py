"""In which order pending sessions get their turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from uuid import UUID

from backendai.scheduler.snapshot import SessionView

Sequence = Callable[[Iterable[SessionView]], list[SessionView]]


def sequence_named(name: str) -> Sequence:
    """Return the sequence of that name; ValueError when there is none."""
    try:
        return SEQUENCES[name]
    except KeyError:
        raise ValueError(f"no sequence is called {name!r}: use one of {', '.join(SEQUENCES)}") from None


def fifo(sessions: Iterable[SessionView]) -> list[SessionView]:
    """Return the sessions by priority, highest first; equals by age, oldest first."""
    return sorted(sessions, key=_oldest_first)


def lifo(sessions: Iterable[SessionView]) -> list[SessionView]:
    """Return the sessions by priority, highest first; equals by age, newest first."""
    return sorted(sessions, key=_newest_last, reverse=True)


SEQUENCES: dict[str, Sequence] = {"fifo": fifo, "lifo": lifo}


def _oldest_first(session: SessionView) -> tuple[int, datetime, UUID]:
    return -session.priority, session.created_at, session.id


def _newest_last(session: SessionView) -> tuple[int, datetime, UUID]:
    return session.priority, session.created_at, session.id
