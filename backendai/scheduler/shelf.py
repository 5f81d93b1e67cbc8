"""Shelves: agents that waste alike beside a request, each shelf in the order of the selection.

Of each stretch of a shelf is known the most that any of its agents may have of each slot: where that is too little for
a request, none of them need be looked at. When an agent shrinks, its stretch knows too much, never too little, until so
many looks were in vain that measuring it anew is worth while.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from backendai.scheduler.demand import Request
from backendai.scheduler.packing import Packing
from backendai.scheduler.room import Room
from backendai.scheduler.selection import Entry

STRETCH = 64
_PATIENCE = 16  # looks in vain, each of which costs about an eighth of measuring a stretch


class Shelf:
    """Agents of one architecture with the same kinds of accelerators left; ``entries`` are their ranks.

    ``bounds``: for each ``STRETCH`` agents in a row, the most that one of them may have, packed. ``last_found``: the
    place of the agent that was found last, who will most often be the next to move.
    """

    __slots__ = ("_in_vain", "_packing", "architecture", "bounds", "entries", "kinds", "last_found", "rooms")

    def __init__(self, architecture: str, kinds: frozenset[str], packing: Packing) -> None:
        self.architecture, self.kinds = architecture, kinds
        self.entries: list[Entry] = []
        self.rooms: list[Room] = []
        self.bounds: list[int] = []
        self.last_found = 0
        self._in_vain: list[int] = []
        self._packing = packing

    def sort(self) -> None:
        """Sort agents that were added to ``rooms`` in any order."""
        self.rooms.sort(key=lambda room: room.entry)
        self.entries = [room.entry for room in self.rooms]
        self.bounds = [self._measured(at) for at in range(0, len(self.rooms), STRETCH)]
        self._in_vain = [0] * len(self.bounds)

    def copy(self, by_order: Sequence[Room]) -> Shelf:
        """Return a shelf on which the copies of its agents stand, given by their order."""
        other = Shelf(self.architecture, self.kinds, self._packing)
        other.entries, other.bounds = self.entries.copy(), self.bounds.copy()
        other.rooms = [by_order[room.order] for room in self.rooms]
        other._in_vain = self._in_vain.copy()
        for room in other.rooms:
            room.shelf = other
        return other

    def put(self, room: Room) -> None:
        """Put the agent where its entry belongs."""
        place = bisect_left(self.entries, room.entry)
        self.entries.insert(place, room.entry)
        self.rooms.insert(place, room)
        if len(self.rooms) > STRETCH * len(self.bounds):
            self.bounds.append(0)
            self._in_vain.append(0)
        self._cover((place, *_begins(place, len(self.rooms))))

    def remove(self, room: Room) -> None:
        """Take the agent away; its entry must be that with which it was put here."""
        place = bisect_left(self.entries, room.entry)
        del self.entries[place], self.rooms[place]
        self._cover(_ends(place, len(self.rooms)))

    def move(self, room: Room, entry: Entry) -> None:
        """Put an agent of this shelf that has shrunk where its new entry belongs."""
        entries, place = self.entries, self.last_found
        if place >= len(entries) or entries[place] != room.entry:
            place = bisect_left(entries, room.entry)
        room.entry = entry
        if (not place or entries[place - 1] < entry) and (place + 1 == len(entries) or entry < entries[place + 1]):
            entries[place] = entry
            return
        del entries[place], self.rooms[place]
        target = bisect_left(entries, entry)
        entries.insert(target, entry)
        self.rooms.insert(target, room)
        self._cover((target, *(_begins(target, place + 1) if target < place else _ends(place, target))))

    def looked_in_vain(self, stretch: int) -> None:
        """Note that no agent of the stretch had room, though its bound has."""
        self._in_vain[stretch] += 1
        if self._in_vain[stretch] == _PATIENCE:
            self._in_vain[stretch] = 0
            self.bounds[stretch] = self._measured(stretch * STRETCH)

    def _cover(self, places: Iterable[int]) -> None:
        """Let the bounds cover the agents who are new to their stretch."""
        bounds, guards = self.bounds, self._packing.guards
        for place in places:
            stretch, packed = place // STRETCH, self.rooms[place].packed
            if (bounds[stretch] | guards) - packed & guards != guards:  # as in ``Packing.has_room``
                bounds[stretch] = self._packing.most_of((bounds[stretch], packed))

    def _measured(self, begin: int) -> int:
        return self._packing.most_of([room.packed for room in self.rooms[begin : begin + STRETCH]])


def _begins(first: int, end: int) -> range:
    """Return the places at which stretches begin behind ``first``: who is new there when all move up by one."""
    return range(first - first % STRETCH + STRETCH, end, STRETCH)


def _ends(first: int, end: int) -> range:
    """Return the places at which stretches end: who is new there when all from ``first`` on close up by one."""
    return range(first - first % STRETCH + STRETCH - 1, end, STRETCH)


class Shelves:
    """All shelves of a pass."""

    def __init__(self, packing: Packing) -> None:
        self._packing = packing
        self._all: dict[tuple[str, frozenset[str]], Shelf] = {}
        self._levels: dict[tuple[str, frozenset[str]], list[list[Shelf]]] = {}

    def having(self, architecture: str, kinds: frozenset[str]) -> Shelf:
        """Return the shelf for such agents, a new one when there is none."""
        shelf = self._all.get((architecture, kinds))
        if shelf is None:
            shelf = self._all[architecture, kinds] = Shelf(architecture, kinds, self._packing)
            self._levels.clear()
        return shelf

    def sort(self) -> None:
        """Sort every shelf."""
        for shelf in self._all.values():
            shelf.sort()

    def copy(self, by_order: Sequence[Room]) -> Shelves:
        """Return shelves on which the copies of the agents stand, given by their order."""
        other = Shelves(self._packing)
        other._all = {key: shelf.copy(by_order) for key, shelf in self._all.items()}
        return other

    def levels(self, request: Request) -> list[list[Shelf]]:
        """Return the shelves of the request's architecture that have what it needs, those that waste alike together.

        The least waste comes first.
        """
        levels = self._levels.get(request.group)
        if levels is None:
            by_waste: dict[int, list[Shelf]] = {}
            for shelf in self._all.values():
                if request.architecture in ("", shelf.architecture) and request.kinds <= shelf.kinds:
                    by_waste.setdefault(len(shelf.kinds - request.kinds), []).append(shelf)
            levels = self._levels[request.group] = [by_waste[waste] for waste in sorted(by_waste)]
        return levels
