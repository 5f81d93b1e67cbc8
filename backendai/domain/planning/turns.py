"""Limits concurrent previews, as each costs as much as a scheduler pass."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from backendai.base.core.errors import Overloaded

_AT_ONCE = 2
_PATIENCE_SECONDS = 5.0


class Busy(Overloaded):
    """Too many previews are running."""


@contextmanager
def turn_of(person: Any, *, patience: float = _PATIENCE_SECONDS) -> Iterator[None]:
    """Wait until a preview can run, and count it as running during the block. This process runs two previews at once,
    at most one per person.

    A person's second request waits for the first; a third is rejected. Raises Busy, also after ``patience`` seconds of
    waiting.
    """
    with _changed:
        if _waiting[person]:
            raise Busy("Two of your requests are already being processed. Try again when they finish.")
        _waiting[person] += 1
        try:
            is_free = _changed.wait_for(lambda: person not in _running and len(_running) < _AT_ONCE, patience)
        finally:
            _waiting.subtract({person: 1})
            if not _waiting[person]:
                del _waiting[person]
        if not is_free:
            raise Busy("The scheduler is busy. Try again in a few seconds.")
        _running.add(person)
    try:
        yield
    finally:
        with _changed:
            _running.discard(person)
            _changed.notify_all()


_changed = threading.Condition()
_running: set[Any] = set()
_waiting: Counter[Any] = Counter()
