"""How long sessions run, learned from those that have ended: counts by length, the newest weighing most.

The lengths are counted in buckets, two for each doubling, from one second to half a year.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from math import log2

BUCKETS = 48
LEAST = 5.0  # fewer sessions say nothing: a wider group is asked instead
_FADING = 0.98  # the weight of older sessions at each new one, so that about the last fifty count
_PER_DOUBLING = 2


def with_length(counts: Sequence[float], seconds: float) -> list[float]:
    """Return the counts with one more session of this length; older ones fade. Empty counts begin anew."""
    faded = [round(count * _FADING, 4) for count in counts] or [0.0] * BUCKETS
    faded[_bucket_of(seconds)] += 1.0
    return faded


def length_at(share: float, groups: Iterable[Sequence[float]], *, beyond: timedelta = timedelta(0)) -> timedelta | None:
    """Return the length that this share of sessions does not exceed, of those that ran longer than ``beyond``.

    ``groups``: counts of groups of sessions, the narrowest first; the first with enough such sessions answers. None if
    no group has enough.
    """
    for counts in groups:
        left = _beyond(counts, beyond.total_seconds())
        total = sum(left)
        if total >= LEAST:
            return max(timedelta(seconds=_at(left, share * total)), beyond)
    return None


def _bucket_of(seconds: float) -> int:
    return min(max(int(_PER_DOUBLING * log2(max(seconds, 1.0))), 0), BUCKETS - 1)


def _edge(bucket: int) -> float:
    return 0.0 if bucket == 0 else float(2 ** (bucket / _PER_DOUBLING))


def _beyond(counts: Sequence[float], seconds: float) -> list[float]:
    """Return the counts of sessions that ran longer; a bucket that begins before this time counts in part."""
    at = _bucket_of(seconds)
    left = [0.0] * at + list(counts[at:])
    if at < len(left):
        left[at] *= min(1.0, (_edge(at + 1) - seconds) / (_edge(at + 1) - _edge(at))) if seconds > _edge(at) else 1.0
    return left


def _at(counts: Sequence[float], weight: float) -> float:
    """Return the length up to which the counts sum up to ``weight``."""
    for bucket, count in enumerate(counts):
        if count >= weight > 0 or (count and bucket == len(counts) - 1):
            return _edge(bucket) + (_edge(bucket + 1) - _edge(bucket)) * min(weight / count, 1.0)
        weight -= count
    return _edge(len(counts))
