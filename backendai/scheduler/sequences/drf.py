"""Dominant resource fairness: the turn is the user's who holds the smallest share of what he uses most.

The share of a user is the largest, over the slots, of what he holds in the group by what its agents have, divided by
his weight. It follows each placement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heapreplace
from math import inf

from backendai.scheduler.sequence import Line, Sequence
from backendai.scheduler.snapshot import SessionView


def drf(line: Line) -> Iterator[SessionView]:
    """Yield the oldest session of the user with the smallest share; equal shares by age, then by id.

    A user whose session finds no room keeps his share, and the next of his sessions is tried: he stops nobody.
    """
    sessions, held, weights = line.sessions, line.held, line.weights
    # As floats, which are exact for whole mebibytes: dividing by a whole number of that size takes four times as long.
    capacity = {name: float(amount) for name, amount in line.capacity.items()}
    queues: dict[str, list[int]] = {}
    for place in range(len(sessions) - 1, -1, -1):
        queues.setdefault(sessions[place].holder.user, []).append(place)
    heap = [
        (dominant_share(held.get(user, {}), capacity, weights.get(user, 1.0)), queue[-1], user, queue)
        for user, queue in queues.items()
    ]  # no two are equal in the first two: the others are never compared
    heapify(heap)
    while heap:
        share, place, user, queue = heap[0]
        before = held.get(user)
        yield sessions[place]
        queue.pop()
        if not queue:
            heappop(heap)
            continue
        now = held.get(user)
        if now is not None and now is not before:
            share = dominant_share(now, capacity, weights.get(user, 1.0))
        heapreplace(heap, (share, queue[-1], user, queue))


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


SEQUENCE = Sequence("drf", "dominant resource fairness: the smallest share first", drf)
