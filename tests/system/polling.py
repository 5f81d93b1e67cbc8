"""Waiting for something to become true, with a deadline that says what did not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_SHORTEST, _LONGEST, _SHARE = 0.05, 1.0, 0.1  # seconds; asking costs the portal and us a processor


def until(question: Callable[[], T], seconds: float, what: str, *, last: Callable[[], object] | None = None) -> T:
    """Return the first true answer; an AssertionError with ``what`` (and what ``last`` returns) after ``seconds``.

    What has not come for long is asked for less often: a tenth of the time that it took is lost at most."""
    started_at = time.monotonic()
    while not (answer := question()):
        waited = time.monotonic() - started_at
        if waited > seconds:
            raise AssertionError(f"not within {seconds:g} s: {what} (last: {last() if last else answer!r})")
        time.sleep(min(_LONGEST, max(_SHORTEST, _SHARE * waited)))
    return answer
