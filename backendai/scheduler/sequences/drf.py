"""Sequence ``drf`` (dominant resource fairness): the user with the smallest dominant share is next.

A user has a share of each slot: the part of the group's capacity that the user holds. The largest of these shares,
divided by the user's weight, is the dominant share. Each placement updates it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from math import inf

from backendai.base.core.messages import Message
from backendai.scheduler.sequence import Line, Sequence
from backendai.scheduler.snapshot import SessionView


class _User:
    """A user in the line: the positions of the user's sessions (the oldest last), the user's holdings and dominant
    share."""

    __slots__ = ("counted", "held", "queue", "weight")

    def __init__(self, held: dict[str, int], weight: float, capacity: Mapping[str, float]) -> None:
        self.queue: list[int] = []
        self.held = held
        self.weight = weight
        self.counted = capacity if weight > 0 else {}


def drf(line: Line) -> Iterator[SessionView]:
    """Yield the oldest session of the user with the smallest dominant share, repeatedly. Of users with equal shares,
    the one with the oldest session is next; of sessions equally old, the smallest id.

    After each yield ``line.tally.latest`` holds the amounts placed. If it is empty, the user's share is unchanged, and
    the user's next session follows.
    """
    sessions, tally = line.sessions, line.tally
    users, levels = _users(line)
    shares = list(levels)
    heapify(shares)
    while shares:
        share = shares[0]
        level = levels[share]  # the places of the sessions that are next, one of each user who has this share
        while level:
            place = level[0]
            tally.latest = ()
            yield sessions[place]
            user = users[place]
            grown = share
            if tally.latest:
                held, counted, weight = user.held, user.counted, user.weight
                for name, more in tally.latest:  # the shares of other slots are unchanged
                    held[name] = amount = held.get(name, 0) + more
                    if name in counted and grown < (part := amount / counted[name] / weight):
                        grown = part
            queue = user.queue
            queue.pop()
            if not queue:
                heappop(level)
            elif grown == share:
                heapreplace(level, queue[-1])
            else:
                heappop(level)
                if grown in levels:
                    heappush(levels[grown], queue[-1])
                else:
                    levels[grown] = [queue[-1]]
                    heappush(shares, grown)
        del levels[heappop(shares)]


def dominant_share(held: Mapping[str, int], capacity: Mapping[str, float], weight: float) -> float:
    """Return the user's largest share of any slot, divided by the weight; infinite for weight 0. Slots without capacity
    do not count."""
    largest = 0.0
    for name, amount in held.items():
        whole = capacity.get(name)
        if whole:
            share = amount / whole
            if share > largest:
                largest = share
    return largest / weight if weight > 0 else inf


def _users(line: Line) -> tuple[list[_User], dict[float, list[int]]]:
    """Return a user for each session in the line. Also returns by share the positions of users' oldest sessions."""
    # As floats, which are exact for whole mebibytes: dividing by a whole number of that size takes four times as long.
    capacity = {name: float(amount) for name, amount in line.capacity.items() if amount}
    by_name: dict[str, _User] = {}
    users = []
    for place, session in enumerate(line.sessions):
        name = session.holder.user
        user = by_name.get(name)
        if user is None:
            user = by_name[name] = _User(line.tally.held.setdefault(name, {}), line.weights.get(name, 1.0), capacity)
        user.queue.append(place)
        users.append(user)
    levels: dict[float, list[int]] = {}
    for user in by_name.values():
        share = dominant_share(user.held, capacity, user.weight)
        levels.setdefault(share, []).append(user.queue[0])  # by place, so each level is a heap
        user.queue.reverse()
    return users, levels


SEQUENCE = Sequence("drf", Message("dominant resource fairness: the smallest share first"), drf)
