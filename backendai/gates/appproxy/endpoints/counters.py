"""Counts the requests of each endpoint since the start of the proxy.

Counters only grow and gauges are integrals over time, so a lost reading costs only resolution.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from backendai.domain.serving.measures import BOUNDS
from backendai.domain.serving.services.readings import ProxyCounts


class Gauge:
    """A current number and its integral over time. ``now`` returns monotonic seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self.count, self._seconds, self._at = now, 0, 0.0, now()

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Raise the number by 1 for the length of the context."""
        self._change(1)
        try:
            yield
        finally:
            self._change(-1)

    @property
    def seconds(self) -> float:
        """Return the integral of the number up to now."""
        return self._seconds + self.count * (self._now() - self._at)

    def _change(self, by: int) -> None:
        self._seconds, self._at = self.seconds, self._now()
        self.count += by


@dataclass
class Counters:
    """The counters of one endpoint."""

    now: Callable[[], float]
    requests: int = 0
    completions: int = 0
    errors: int = 0
    refused: int = 0
    histogram: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))

    def __post_init__(self) -> None:
        self.open, self.queued, self.held = Gauge(self.now), Gauge(self.now), Gauge(self.now)

    def complete(self, seconds: float, *, failed: bool) -> None:
        """Count a finished request; ``seconds``: its duration, ``failed``: whether it failed."""
        self.completions += 1
        self.errors += failed
        self.histogram[bisect_left(BOUNDS, seconds)] += 1

    def left(self) -> None:
        """Count a finished request whose caller left. Its duration is not recorded."""
        self.completions += 1

    @property
    def is_busy(self) -> bool:
        """Return whether any request of the endpoint is open or waits."""
        return bool(self.open.count or self.queued.count or self.held.count)

    def reading(self, endpoint_id: UUID, book_version: int) -> ProxyCounts:
        """Return the current values of the counters."""
        return ProxyCounts(
            endpoint_id=endpoint_id,
            book_version=book_version,
            requests=self.requests,
            completions=self.completions,
            errors=self.errors,
            refused=self.refused,
            busy_seconds=round(self.open.seconds, 3),
            queued_seconds=round(self.queued.seconds, 3),
            open=self.open.count,
            queued=self.queued.count,
            held=self.held.count,
            histogram=tuple(self.histogram),
        )


class Rates:
    """Limits the requests of each token per minute, with a token bucket in memory. It works without Redis."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._full_at: dict[str, float] = {}

    def take(self, key: str, per_minute: int) -> float:
        """Count one request of the token and return 0, or return the seconds to wait. ``per_minute`` 0: no limit."""
        if not per_minute:
            return 0.0
        now, pace = self._now(), 60.0 / per_minute
        full = max(self._full_at.get(key, now), now)
        wait = full - now - pace * (max(per_minute // 6, 1) - 1)  # bursts of ten seconds' requests
        if wait > 1e-9:
            return wait
        self._full_at[key] = full + pace
        if len(self._full_at) > 10_000:
            self._full_at = {name: at for name, at in self._full_at.items() if at > now}
        return 0.0
