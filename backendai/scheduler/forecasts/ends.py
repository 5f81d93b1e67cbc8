"""When sessions and runs probably end, from how long earlier ones ran. Without enough of them nothing is said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil, sqrt
from typing import NamedTuple

from backendai.scheduler.forecasts.lengths import length_at

_EARLY, _MIDDLE, _LATE = 0.1, 0.5, 0.9
_NONE = timedelta(0)


class EndRange(NamedTuple):
    """When a session probably ends: between two times in 8 of 10 cases."""

    early: datetime
    expected: datetime
    late: datetime


class StepWork(NamedTuple):
    """What is left of a step. ``after``: the steps that it waits for; ``each``: those of which it waits for the element
    with the same number only. ``open``: the number of elements that do not run yet; ``ran``: for how long each of the
    others has run. ``few`` to ``many`` run at once. ``counts``: lengths of its elements that have ended."""

    name: str
    after: frozenset[str]
    each: frozenset[str]
    open: int
    ran: Sequence[timedelta]
    few: int
    many: int
    counts: Sequence[float]


class RunEnd(NamedTuple):
    """When a run probably ends. ``step``: the longest part of the chain of steps that decides it."""

    early: datetime
    late: datetime
    step: str


class _Left(NamedTuple):
    """How long a step still takes once it can begin; ``last``: its last element alone."""

    early: timedelta
    late: timedelta
    last: timedelta


def session_end(groups: Iterable[Sequence[float]], started_at: datetime, now: datetime) -> EndRange | None:
    """Return when a running session probably ends; None if too few like it have run that long."""
    known, ran = list(groups), max(now - started_at, _NONE)
    lengths = [length_at(share, known, beyond=ran) for share in (_EARLY, _MIDDLE, _LATE)]
    found = [max(started_at + length, now) for length in lengths if length is not None]
    return EndRange(*found) if len(found) == len(lengths) else None


def run_end(steps: Sequence[StepWork], now: datetime) -> RunEnd | None:
    """Return when a run probably ends; None if the lengths of a step that is left are unknown. ``steps``: in an order
    in which none comes before a step that it waits for."""
    left = {each.name: _left(each) for each in steps}
    if any(each is None for each in left.values()) or not any(step.open or step.ran for step in steps):
        return None
    known = {name: each for name, each in left.items() if each is not None}
    early, _ = _ends(steps, {name: (each.early, each.last) for name, each in known.items()})
    late, before = _ends(steps, {name: (each.late, each.last) for name, each in known.items()})
    at: str | None = max(late, key=lambda name: late[name])
    chain = []
    while at is not None:
        chain.append(at)
        at = before[at]
    decisive = max(chain, key=lambda name: known[name].late)
    return RunEnd(now + max(early.values()), now + max(late.values()), decisive)


def _ends(
    steps: Sequence[StepWork], left: Mapping[str, tuple[timedelta, timedelta]]
) -> tuple[dict[str, timedelta], dict[str, str | None]]:
    """Return when each step is done, and for which step it waits longest."""
    ends: dict[str, timedelta] = {}
    before: dict[str, str | None] = {}
    for step in steps:
        whole, last = left[step.name]
        waits = {on: ends[on] + whole for on in step.after if on in ends}
        waits |= {on: max(ends[on] + last, whole) for on in step.each if on in ends}
        on = max(waits, key=lambda name: waits[name], default=None)
        ends[step.name] = max(waits[on] if on else _NONE, whole) if step.open or step.ran else _NONE
        before[step.name] = on if on and ends[on] > _NONE else None
    return ends, before


def _left(step: StepWork) -> _Left | None:
    """Return how long the step still takes; None if that is unknown.

    The sum of many lengths deviates less than each of them, as long and short ones even out; the last may be long.
    """
    lengths = [length_at(share, [step.counts]) for share in (_EARLY, _MIDDLE, _LATE)]
    rests = [_rests(step, share) for share in (_EARLY, _MIDDLE, _LATE)]
    if not step.open and not step.ran:
        return _Left(_NONE, _NONE, _NONE)
    if None in lengths or None in rests:
        return None
    short, middle, long = (each for each in lengths if each is not None)
    least, usual, most = (each for each in rests if each is not None)
    early, late = max(least, default=_NONE), max(most, default=_NONE)
    if step.open:
        work, margin = sum(usual, _NONE) + middle * step.open, (long - short) / 2 * sqrt(step.open)
        rounds = ceil((step.open + len(step.ran)) / step.few)
        slow = min((work + margin) / step.few + long * (1 - 1 / step.few), long * rounds)
        early, late = max(early, short, (work - margin) / step.many), max(late, long, slow)
    return _Left(early, late, middle)


def _rests(step: StepWork, share: float) -> list[timedelta] | None:
    """Return how long each running element still runs; None if one has run longer than all known ones."""
    ends = [length_at(share, [step.counts], beyond=ran) for ran in step.ran]
    rests = [end - ran for end, ran in zip(ends, step.ran, strict=True) if end is not None]
    return rests if len(rests) == len(ends) else None
