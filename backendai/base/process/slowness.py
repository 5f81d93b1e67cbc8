"""How much slower than usual this machine is: the factor by which time limits of programs that start here grow.

Only the standard library, from Python 3.8 on: guest agents use it inside kernels.
"""

from __future__ import annotations

import os
import time
from functools import lru_cache
from typing import NamedTuple

MOST = 8.0
_USUAL_SECONDS = 0.0012  # processor time of the fixed work on a usual machine
_MOST_WAITING = 0.75  # the share says that programs wait, not how many: alone it makes the factor 4 at most
_PRESSURE = "/proc/pressure/cpu"
_WORK = "\n".join(
    f"def work_{n}(first, second={n}):\n    if first > second:\n        return [first + {n}, second, 'text {n}']\n"
    f"    return {{'name': first, 'other': second}}\n"
    for n in range(40)
)


class Measure(NamedTuple):
    """``load``: programs that run or wait for a processor, the higher average of one and five minutes. ``waiting``: the
    share of the last ten seconds in which one waited. ``pace``: the processor time of fixed work, 1 on a usual
    machine."""

    load: float
    cores: int
    waiting: float
    pace: float


def measure() -> Measure:
    """Return this machine's present state. Reads two small files; the first call also works for some milliseconds."""
    try:
        load = max(os.getloadavg()[:2])
    except OSError:
        load = 0.0
    return Measure(load, os.cpu_count() or 1, _waiting(), _pace())


def slowness(found: Measure) -> float:
    """Return the factor of time limits, from 1 to 8."""
    waits = 1 / (1 - min(found.waiting, _MOST_WAITING))
    return min(MOST, max(1.0, found.pace) * max(1.0, found.load / found.cores, waits))


def allowed(seconds: float, own: float = 1.0) -> float:
    """Return a usual time limit as it is on this machine now. ``own``: the factor that holds anyhow, as for emulated
    machines; the product of both is at most 8 or ``own``."""
    return seconds * max(own, min(MOST, own * slowness(measure())))


def _waiting() -> float:
    """Return the share of the last ten seconds; 0 where the kernel does not measure it, as inside some containers."""
    try:
        with open(_PRESSURE) as file:  # noqa: PTH123
            words = dict(word.split("=") for word in file.readline().split()[1:])
        return float(words["avg10"]) / 100
    except (OSError, ValueError, KeyError):
        return 0.0


@lru_cache(maxsize=None)  # noqa: UP033  (before Python 3.9)
def _pace() -> float:
    """Return the processor time of compiling a program, which does not grow with the load. The best of three."""
    spent = []
    for _ in range(3):
        before = time.thread_time()
        compile(_WORK, "work", "exec")
        spent.append(time.thread_time() - before)
    return min(spent) / _USUAL_SECONDS
