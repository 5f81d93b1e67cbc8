"""What a control process counts for its metrics."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Histogram

registry = CollectorRegistry()
_seconds = Histogram(
    "backendai_pass_seconds",
    "Length of the passes of each loop; group is the scheduler's pass over one group.",
    ("loop",),
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
    registry=registry,
)
_changes = Counter(
    "backendai_pass_changes",
    "What the passes did: sessions placed, rows repaired.",
    ("loop",),
    registry=registry,
)
_failures = Counter("backendai_pass_failures", "Passes that ended with an error.", ("loop",), registry=registry)


def counted(name: str, work: Callable[[], int]) -> int:
    """Return ``work()``, counted under the first word of the lease's name."""
    loop, began = name.partition(".")[0], time.perf_counter()
    try:
        changed = work()
    except BaseException:
        _failures.labels(loop).inc()
        raise
    finally:
        _seconds.labels(loop).observe(time.perf_counter() - began)
    _changes.labels(loop).inc(changed)
    return changed
