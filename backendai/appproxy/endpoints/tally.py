"""What a proxy counts of each endpoint since its boot: counters that only grow, and integrals over time, so that a
reader who misses a reading loses resolution only."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from backendai.serving.measures import BOUNDS
from backendai.serving.services.readings import Tally


class Gauge:
    """How many there are now, and the integral of that over time. ``now`` gives monotonic seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self.count, self._seconds, self._at = now, 0, 0.0, now()

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Count one as long as the context lasts, whatever ends it."""
        self._change(1)
        try:
            yield
        finally:
            self._change(-1)

    @property
    def seconds(self) -> float:
        """The integral up to now."""
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
        """Count an answer that is whole, or that broke."""
        self.completions += 1
        self.errors += failed
        self.histogram[bisect_left(BOUNDS, seconds)] += 1

    def left(self) -> None:
        """Count a request whose caller left: the replica's work on it is done, and its time is that of no answer."""
        self.completions += 1

    @property
    def is_busy(self) -> bool:
        """Something is open or waits."""
        return bool(self.open.count or self.queued.count or self.held.count)

    def reading(self, endpoint_id: UUID, book_version: int) -> Tally:
        """Return what it has counted so far."""
        return Tally(
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
    """How often each token may ask in a minute: a bucket for each, in memory, because it must hold without Redis."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._full_at: dict[str, float] = {}

    def take(self, key: str, per_minute: int) -> float:
        """Take one and return 0, or return the seconds until one can be taken. ``per_minute`` 0: no limit."""
        if not per_minute:
            return 0.0
        now, pace = self._now(), 60.0 / per_minute
        full = max(self._full_at.get(key, now), now)
        wait = full - now - pace * (max(per_minute // 6, 1) - 1)  # ten seconds' worth at once
        if wait > 1e-9:
            return wait
        self._full_at[key] = full + pace
        if len(self._full_at) > 10_000:
            self._full_at = {name: at for name, at in self._full_at.items() if at > now}
        return 0.0
