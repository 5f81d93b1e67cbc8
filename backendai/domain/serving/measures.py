"""From the counters of app proxies to load: differences over each proxy's own uptime, so that no clocks are compared
and a lost, doubled or late reading costs resolution only. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from backendai.scheduler.serving.snapshot import LoadView

SHORT, LONG, PEAK = 6.0, 30.0, timedelta(seconds=300)
BUCKET = 30  # seconds that share one peak
BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)  # seconds; slower ones come last


class Reading(NamedTuple):
    """A row of ``ProxyReading``."""

    proxy: str
    boot: str
    at: datetime
    uptime: float
    requests: int
    completions: int
    busy_seconds: float
    queued_seconds: float
    open: int
    queued: int
    held: int
    histogram: Sequence[int] = ()


class Span(NamedTuple):
    """What happened between two readings of one proxy."""

    seconds: float
    requests: int
    completions: int
    busy_seconds: float
    histogram: Sequence[int]


_NONE = Reading("", "", datetime.min, 0.0, 0, 0, 0.0, 0.0, 0, 0, 0)


def load_of(readings: Iterable[Reading], now: datetime, *, is_partial: bool = False) -> LoadView:
    """Return the load of one endpoint by its readings of the last half minute or more, without peaks."""
    by_boot: defaultdict[tuple[str, str], list[Reading]] = defaultdict(list)
    for one in readings:
        by_boot[one.proxy, one.boot].append(one)
    newest_boots: dict[str, list[Reading]] = {}
    for rows in by_boot.values():
        rows.sort(key=lambda one: one.uptime)
        other = newest_boots.get(rows[-1].proxy)
        if other is None or other[-1].at < rows[-1].at:
            newest_boots[rows[-1].proxy] = rows
    last = [rows[-1] for rows in newest_boots.values()]
    if not last:
        return LoadView(age=None, is_partial=is_partial)
    spans = [_span(rows, LONG) for rows in newest_boots.values()]
    service = service_seconds(spans)
    queued = sum(one.queued for one in last)
    return LoadView(
        short=_load([_span(rows, SHORT) for rows in newest_boots.values()], service),
        long=_load(spans, service),
        backlog=queued * service / 60,
        queued=queued,
        open=sum(one.open for one in last),
        held=sum(one.held for one in last),
        age=max(now - min(one.at for one in last), timedelta(0)),
        rate=sum(one.requests / one.seconds for one in spans if one.seconds > 0),
        p95=quantile(counts_of(spans), 0.95),
        is_partial=is_partial,
    )


def with_peaks(peaks: Iterable[Sequence[float]], load: float, now: datetime) -> list[list[float]]:
    """Return the highest loads of the last five minutes, one for each half minute, with this one among them."""
    bucket = int(now.timestamp()) // BUCKET * BUCKET
    kept = {int(at): value for at, value in peaks if at > now.timestamp() - PEAK.total_seconds() - BUCKET}
    kept[bucket] = max(kept.get(bucket, 0.0), round(load, 3))
    return [[at, value] for at, value in sorted(kept.items())]


def highest(peaks: Iterable[Sequence[float]], now: datetime) -> float:
    """Return the highest load of the last five minutes."""
    oldest = now.timestamp() - PEAK.total_seconds() - BUCKET
    return max((value for at, value in peaks if at > oldest), default=0.0)


def service_seconds(spans: Sequence[Span]) -> float:
    """Return how long a replica worked on one request on average, 0 where none was finished."""
    done = sum(one.completions for one in spans)
    return sum(one.busy_seconds for one in spans) / done if done else 0.0


def quantile(counts: Sequence[int], share: float) -> float | None:
    """Return the upper bound under which this share of the answers lies; None without answers."""
    total, passed = sum(counts), 0
    for index, count in enumerate(counts):
        passed += count
        if total and passed >= share * total:
            return BOUNDS[min(index, len(BOUNDS) - 1)]
    return None


def spans_of(readings: Iterable[Reading], seconds: float) -> list[Span]:
    """Return what each boot of each proxy counted over so many seconds before its newest reading."""
    by_boot: defaultdict[tuple[str, str], list[Reading]] = defaultdict(list)
    for one in readings:
        by_boot[one.proxy, one.boot].append(one)
    return [_span(sorted(rows, key=lambda one: one.uptime), seconds) for rows in by_boot.values()]


def counts_of(spans: Sequence[Span]) -> list[int]:
    """Return how many answers took how long, by the ``BOUNDS``."""
    return [sum(column) for column in zip(*(one.histogram for one in spans if one.histogram), strict=False)]


def _span(rows: Sequence[Reading], seconds: float) -> Span:
    """Return the difference over ``seconds``, or over as much as is known; a boot began with zeros."""
    last = rows[-1]
    earlier = [one for one in rows if one.uptime <= last.uptime - seconds]
    # A proxy at rest reports every ten seconds: the first reading inside the span is better than one long before.
    first = earlier[-1] if earlier else (_NONE if last.uptime <= seconds else rows[0])
    before = first.histogram or [0] * len(last.histogram)
    return Span(
        last.uptime - first.uptime,
        max(last.requests - first.requests, 0),
        max(last.completions - first.completions, 0),
        max(last.busy_seconds - first.busy_seconds, 0.0),
        [max(after - then, 0) for after, then in zip(last.histogram, before, strict=False)],
    )


def _load(spans: Iterable[Span], service: float) -> float:
    known = [one for one in spans if one.seconds > 0]
    busy = sum(one.busy_seconds / one.seconds for one in known)
    return max(busy, sum(one.requests / one.seconds for one in known) * service)
