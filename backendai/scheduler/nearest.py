"""Finds the agent that comes closest to having room for a request. Not every agent is checked.

Agents are the leaves of a tree. Each knot stores the maximum of each slot among the agents below it: no agent below can
be closer than that, so most knots are never searched. When an agent shrinks, the maxima above it are too high until the
next search, but never too low. A knot is divided when it is first searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from backendai.scheduler.demand import Request
from backendai.scheduler.room import Room

_BRANCHES = 8


class _Knot:
    """A group of agents, with knots below it once it is divided; ``order``: the position of the first agent by name."""

    __slots__ = ("above", "below", "free", "is_stale", "order")

    def __init__(self, rooms: list[Room]) -> None:
        self.above: _Knot | None = None
        self.below: list[Room] | list[_Knot] = rooms
        self.order: int = min(room.order for room in rooms)
        self.free: dict[str, int] = {}
        self.restore()

    def restore(self) -> None:
        free: dict[str, int] = {}
        for each in self.below:
            for name, amount in each.free.items():
                if amount > free.get(name, 0):
                    free[name] = amount
        self.free = free
        self.is_stale = False


class Nearest:
    """A tree of agents by free amounts; call ``shrunk`` or ``grown`` after an agent changes."""

    def __init__(self, rooms: Iterable[Room]) -> None:
        everybody = list(rooms)
        self._root = _Knot(everybody) if everybody else None
        self._above = dict.fromkeys(everybody, self._root)

    def closest(self, request: Request, suits: Callable[[Room], bool]) -> tuple[int, Room] | None:
        """Return the distance and the agent that is closest among those that ``suits`` accepts; None if there is none.
        Of equally close agents the first by name is returned."""
        search = _Search(request, suits, self._divide)
        if self._root is not None:
            search.open(self._root)
        return None if search.room is None else (search.best[0], search.room)

    def shrunk(self, room: Room) -> None:
        """Mark the knots above an agent as outdated after its free amounts fell."""
        knot = self._above.get(room)
        while knot is not None and not knot.is_stale:
            knot.is_stale = True
            knot = knot.above

    def grown(self, room: Room) -> None:
        """Raise the maxima of the knots above an agent after its free amounts grew."""
        knot = self._above.get(room)
        while knot is not None:
            for name, amount in room.free.items():
                if amount > knot.free.get(name, 0):
                    knot.free[name] = amount
            knot = knot.above

    def _divide(self, knot: _Knot) -> None:
        """Insert knots of similar agents below a knot that has too many."""
        parts = [cast(list[Room], knot.below)]
        while len(parts) < _BRANCHES:
            parts = [half for part in parts for half in _halves(part)]
        knot.below = knots = [_Knot(part) for part in parts]
        for part, each in zip(parts, knots, strict=True):
            each.above = knot
            self._above.update(dict.fromkeys(part, each))


class _Search:
    def __init__(self, request: Request, suits: Callable[[Room], bool], divide: Callable[[_Knot], None]) -> None:
        self._items, self._suits, self._divide = request.items, suits, divide
        self.best = (-1, -1)
        self.room: Room | None = None

    def open(self, knot: _Knot) -> None:
        if knot.is_stale:
            knot.restore()
        if len(knot.below) > _BRANCHES:
            self._divide(knot)
        bounds = []
        for each in knot.below:
            free, away = each.free, 0
            for name, amount in self._items:  # as in ``distance``; a call for each agent would double the time
                missing = amount - free.get(name, 0)
                if missing > 0:
                    away += missing * 1000 // amount
            if self.room is None or (away, each.order) < self.best:
                bounds.append((away, each.order, each))
        bounds.sort()
        for away, order, each in bounds:
            if self.room is not None and (away, order) >= self.best:
                break
            if isinstance(each, _Knot):
                self.open(each)
            elif self._suits(each):
                self.best, self.room = (away, order), each


def _halves(rooms: list[Room]) -> tuple[list[Room], list[Room]]:
    """Return the agents split in two at the slot in which they differ most."""
    frees = [room.free for room in rooms]
    widest, spread = [0] * len(rooms), -1.0
    for name in frees[0]:
        amounts = [free.get(name, 0) for free in frees]
        most = max(amounts)
        if (most - min(amounts)) / (most or 1) > spread:
            widest, spread = amounts, (most - min(amounts)) / (most or 1)
    ordered = [rooms[at] for at in sorted(range(len(rooms)), key=widest.__getitem__)]
    return ordered[: len(rooms) // 2], ordered[len(rooms) // 2 :]
