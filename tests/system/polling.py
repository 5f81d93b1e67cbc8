"""Waiting for something to become true, with a deadline that says what did not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_PAUSE = 0.1


def until(question: Callable[[], T], seconds: float, what: str, *, last: Callable[[], object] | None = None) -> T:
    """Return the first true answer; an AssertionError with ``what`` (and what ``last`` returns) after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not (answer := question()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what} (last: {last() if last else answer!r})")
        time.sleep(_PAUSE)
    return answer
