"""Which agent comes closest to having room for a request, without looking at all of them.

Agents that are alike stand together in a tree; each knot knows the most that one below it may have of each slot. No
agent below is closer than that would be, so most knots need not be opened. When an agent shrinks, the knots above it
know too much, never too little, until they are opened the next time. A knot is divided when it is first opened, and
most never are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from backendai.scheduler.demand import Request
from backendai.scheduler.room import Room

_BRANCHES = 8


class _Knot:
    """Some agents, below which knots come when it is divided; ``order`` is that of the first agent below by name."""

    __slots__ = ("above", "below", "free", "is_stale", "order")

    def __init__(self, rooms: list[Room]) -> None:
        self.above: _Knot | None = None
        self.below: list[Room] | list[_Knot] = rooms
        self.order: int = min(room.order for room in rooms)
        self.free: dict[str, int] = {}
        self.mend()

    def mend(self) -> None:
        free: dict[str, int] = {}
        for each in self.below:
            for name, amount in each.free.items():
                if amount > free.get(name, 0):
                    free[name] = amount
        self.free = free
        self.is_stale = False


class Nearest:
    """The tree of some agents; whoever changes an agent tells it."""

    def __init__(self, rooms: Iterable[Room]) -> None:
        everybody = list(rooms)
        self._root = _Knot(everybody) if everybody else None
        self._above = dict.fromkeys(everybody, self._root)

    def closest(self, request: Request, suits: Callable[[Room], bool]) -> tuple[int, Room] | None:
        """Return the distance and the agent that lacks least of those that suit; the first by name of equals."""
        search = _Search(request, suits, self._divide)
        if self._root is not None:
            search.open(self._root)
        return None if search.room is None else (search.best[0], search.room)

    def shrunk(self, room: Room) -> None:
        """Let the knots above an agent know that it has less than before."""
        knot = self._above.get(room)
        while knot is not None and not knot.is_stale:
            knot.is_stale = True
            knot = knot.above

    def grown(self, room: Room) -> None:
        """Let the knots above an agent know that it has more than before."""
        knot = self._above.get(room)
        while knot is not None:
            for name, amount in room.free.items():
                if amount > knot.free.get(name, 0):
                    knot.free[name] = amount
            knot = knot.above

    def _divide(self, knot: _Knot) -> None:
        """Put knots of agents that are alike between a knot and its many agents."""
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
            knot.mend()
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
    """Return two halves, the lesser and the greater in the slot in which they differ most."""
    frees = [room.free for room in rooms]
    widest, spread = [0] * len(rooms), -1.0
    for name in frees[0]:
        amounts = [free.get(name, 0) for free in frees]
        most = max(amounts)
        if (most - min(amounts)) / (most or 1) > spread:
            widest, spread = amounts, (most - min(amounts)) / (most or 1)
    ordered = [rooms[at] for at in sorted(range(len(rooms)), key=widest.__getitem__)]
    return ordered[: len(rooms) // 2], ordered[len(rooms) // 2 :]
