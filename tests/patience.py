"""How long tests wait. Their seconds are those of a usual machine; a slow or busy one gets a multiple.

What comes is taken at once, so a long limit costs only a test that fails. ``BACKENDAI_TEST_PATIENCE`` sets the factor
(at least 1) instead of the measurement, as for parts that run side by side and are to have the same one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

from backendai.base.process.slowness import measure

T = TypeVar("T")
_VARIABLE = "BACKENDAI_TEST_PATIENCE"
_CROWD = 2.0  # a limit that is set now holds when other parts of the check run beside
_MOST, _MOST_WAITING = 12.0, 0.9
_SHORTEST, _LONGEST, _SHARE = 0.02, 1.0, 0.1  # seconds; asking costs the portal and us a processor


def factor() -> float:
    """Return how many times longer than on a usual machine something may take here now."""
    if told := os.environ.get(_VARIABLE):
        return max(1.0, float(told))
    found = measure()
    waits = 1 / (1 - min(found.waiting, _MOST_WAITING))
    return min(_MOST, max(1.0, found.pace) * max(_CROWD, found.load / found.cores, waits))


def patient(limit: float) -> float:
    """Return a time limit, in any unit, as it is on this machine now."""
    return limit * factor()


def until(
    question: Callable[[], T],
    seconds: float = 60.0,
    what: str = "it comes true",
    *,
    last: Callable[[], object] | None = None,
) -> T:
    """Return the first true answer; an AssertionError with ``what`` (and what ``last`` returns) after ``seconds``,
    more on a slow machine.

    What has not come for long is asked for less often: a tenth of the time that it took is lost at most."""
    started_at = time.monotonic()
    while not (answer := question()):
        waited = time.monotonic() - started_at
        if waited > seconds and waited > (longest := patient(seconds)):
            raise AssertionError(f"not within {longest:.0f} s: {what} (last: {last() if last else answer!r})")
        time.sleep(min(_LONGEST, max(_SHORTEST, _SHARE * waited)))
    return answer


def pytest_itemcollected(item: pytest.Item) -> None:
    """Extend the time limit of a whole test. A ``conftest.py`` that imports this has it for its folder."""
    own = item.get_closest_marker("timeout")
    limit = float(own.args[0] if own else item.config.getini("timeout"))
    item.add_marker(pytest.mark.timeout(patient(limit)), append=False)
