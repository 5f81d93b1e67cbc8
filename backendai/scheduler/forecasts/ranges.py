"""Ranges of expected starts, widened or narrowed by how earlier forecasts of the group came true.

A forecast's ratio is the wait that came, divided by the wait that was expected. The range contains the middle 80 % of
the group's last ratios, so it holds in 8 of 10 cases as long as the group stays as it is (split conformal prediction).
Where a group changes, as in the morning, ranges hold less often; so the part in the middle grows by what was lacking
(adaptive conformal inference).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

METHOD = 1  # grows with each change of how starts are expected; scores of other methods do not count
SCORED, ENOUGH = 1000, 20  # the forecasts that are looked at, and the fewest that make a range reliable
RECENT = 200  # of them tell whether the ranges hold just now
_INSIDE, _WIDEST = 0.8, 0.98
_SOON = timedelta(seconds=30)  # added to both waits, so that seconds do not count as errors


class Spread(NamedTuple):
    """The ratios at the edges of a group's ranges. ``is_reliable``: they were measured."""

    early: float
    late: float
    latest: float
    is_reliable: bool


_UNKNOWN = Spread(0.5, 1.5, 2.5, is_reliable=False)


class StartRange(NamedTuple):
    """When a session probably starts: between two times in 8 of 10 cases, by the third in 19 of 20."""

    early: datetime
    late: datetime
    latest: datetime


def spread_of(ratios: Sequence[float], were_inside: Sequence[bool]) -> Spread:
    """Return the edges for a group whose last forecasts had these ratios, the newest first. ``were_inside``: whether
    each start came within its range."""
    if len(ratios) < ENOUGH:
        return _UNKNOWN
    recent = were_inside[:RECENT]
    lacking = _INSIDE - sum(recent) / len(recent)
    outside = (1 - min(max(_INSIDE + lacking, _INSIDE / 2), _WIDEST)) / 2
    ordered, late = sorted(ratios), 1 - outside
    early, latest = _quantile(ordered, outside), _quantile(ordered, (1 + late) / 2)
    return Spread(early, _quantile(ordered, late), latest, is_reliable=True)


def range_of(now: datetime, expected: datetime, slow: datetime, spread: Spread) -> StartRange:
    """Return the range around the expected start. ``slow``: the start if all sessions run long, which widens the range
    of a group without scores."""
    wait = max(expected - now, timedelta(0)) + _SOON
    early, late, latest = (now + max(wait * edge - _SOON, timedelta(0)) for edge in spread[:3])
    return StartRange(early, late, latest if spread.is_reliable else max(latest, slow))


def ratio_of(made_at: datetime, expected: datetime, started_at: datetime) -> float:
    """Return the wait that came, divided by the expected one."""
    return (started_at - made_at + _SOON) / (max(expected - made_at, timedelta(0)) + _SOON)


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
