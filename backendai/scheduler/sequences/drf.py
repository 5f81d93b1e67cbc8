"""Dominant resource fairness: the turn is the user's who holds the smallest share of what he uses most.

The share of a user is the largest, over the slots, of what he holds in the group by what its agents have, divided by
his weight. It follows each placement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heapreplace
from math import inf

from backendai.scheduler.sequence import Amounts, Line, Sequence
from backendai.scheduler.snapshot import SessionView

_NOTHING: Amounts = ()


def drf(line: Line) -> Iterator[SessionView]:
    """Yield the oldest session of the user with the smallest share; equal shares by age, then by id.

    A user whose session finds no room keeps his share, and the next of his sessions is tried: he stops nobody.
    """
    sessions, tally, weights = line.sessions, line.tally, line.weights
    # As floats, which are exact for whole mebibytes: dividing by a whole number of that size takes four times as long.
    capacity = {name: float(amount) for name, amount in line.capacity.items() if amount}
    nothing: dict[str, float] = {}
    heap = [
        (
            dominant_share(held, capacity, weight := weights.get(user, 1.0)),
            queue[-1],
            queue,
            held,
            weight,
            capacity if weight > 0 else nothing,
        )
        for user, queue in _queues(sessions).items()
        for held in (tally.held.setdefault(user, {}),)
    ]  # no two are equal in the first two: the others are never compared
    heapify(heap)
    while heap:
        share, place, queue, held, weight, counted = heap[0]
        tally.latest = _NOTHING
        yield sessions[place]
        for name, more in tally.latest:  # what is held of other slots weighs what it did
            held[name] = amount = held.get(name, 0) + more
            if name in counted and share < (grown := amount / counted[name] / weight):
                share = grown
        queue.pop()
        if queue:
            heapreplace(heap, (share, queue[-1], queue, held, weight, counted))
        else:
            heappop(heap)


def dominant_share(held: Mapping[str, int], capacity: Mapping[str, float], weight: float) -> float:
    """Return the largest share of a slot that is held, by weight; a slot that nobody offers does not count."""
    largest = 0.0
    for name, amount in held.items():
        whole = capacity.get(name)
        if whole:
            share = amount / whole
            if share > largest:
                largest = share
    return largest / weight if weight > 0 else inf


def _queues(sessions: list[SessionView]) -> dict[str, list[int]]:
    """Return by user the places of his sessions, the oldest last."""
    queues: dict[str, list[int]] = {}
    for place in range(len(sessions) - 1, -1, -1):
        queues.setdefault(sessions[place].holder.user, []).append(place)
    return queues


SEQUENCE = Sequence("drf", "dominant resource fairness: the smallest share first", drf)
