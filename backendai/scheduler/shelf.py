"""Shelves: agents that leave the same accelerators idle, in the order of the selection.

Each shelf is divided into stretches, with the maximum of each slot per stretch: if that is too small for a request, the
stretch is skipped. When an agent shrinks, the maximum is too high, never too low, until enough failed searches make it
worth updating.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from backendai.scheduler.demand import Request
from backendai.scheduler.packing import Packing
from backendai.scheduler.room import Room
from backendai.scheduler.selection import Entry

STRETCH = 64
_PATIENCE = 16  # failed searches; each costs about an eighth of measuring a stretch


class Shelf:
    """Agents of one architecture with the same kinds of free accelerators; ``entries`` are their ranks. ``bounds``: the
    packed maximum of each ``STRETCH`` agents. ``last_found``: the position of the last match, which most often moves
    next."""

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
        """Return a copy of the shelf with the copies of its agents."""
        other = Shelf(self.architecture, self.kinds, self._packing)
        other.entries, other.bounds = self.entries.copy(), self.bounds.copy()
        other.rooms = [by_order[room.order] for room in self.rooms]
        other._in_vain = self._in_vain.copy()
        for room in other.rooms:
            room.shelf = other
        return other

    def put(self, room: Room) -> None:
        """Insert the agent at the place of its rank."""
        place = bisect_left(self.entries, room.entry)
        self.entries.insert(place, room.entry)
        self.rooms.insert(place, room)
        if len(self.rooms) > STRETCH * len(self.bounds):
            self.bounds.append(0)
            self._in_vain.append(0)
        self._cover((place, *_begins(place, len(self.rooms))))

    def remove(self, room: Room) -> None:
        """Remove the agent; its rank must be unchanged since it was inserted."""
        place = bisect_left(self.entries, room.entry)
        del self.entries[place], self.rooms[place]
        self._cover(_ends(place, len(self.rooms)))

    def move(self, room: Room, entry: Entry) -> None:
        """Move an agent of this shelf after its free amounts fell."""
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
        """Count a search that the stretch's bound allowed but that found no agent. After ``_PATIENCE`` of them the
        bound is measured anew."""
        self._in_vain[stretch] += 1
        if self._in_vain[stretch] == _PATIENCE:
            self._in_vain[stretch] = 0
            self.bounds[stretch] = self._measured(stretch * STRETCH)

    def _cover(self, places: Iterable[int]) -> None:
        """Raise the bounds for agents that are new in their stretch."""
        bounds, guards = self.bounds, self._packing.guards
        for place in places:
            stretch, packed = place // STRETCH, self.rooms[place].packed
            if (bounds[stretch] | guards) - packed & guards != guards:  # as in ``Packing.has_room``
                bounds[stretch] = self._packing.most_of((bounds[stretch], packed))

    def _measured(self, begin: int) -> int:
        return self._packing.most_of([room.packed for room in self.rooms[begin : begin + STRETCH]])


def _begins(first: int, end: int) -> range:
    """Return where stretches begin behind ``first``: agents there are new when all move up by one."""
    return range(first - first % STRETCH + STRETCH, end, STRETCH)


def _ends(first: int, end: int) -> range:
    """Return where stretches end: agents there are new when all from ``first`` on move down by one."""
    return range(first - first % STRETCH + STRETCH - 1, end, STRETCH)


class Shelves:
    """All shelves of a pass."""

    def __init__(self, packing: Packing) -> None:
        self._packing = packing
        self._all: dict[tuple[str, frozenset[str]], Shelf] = {}
        self._levels: dict[tuple[str, frozenset[str]], list[list[Shelf]]] = {}

    def having(self, architecture: str, kinds: frozenset[str]) -> Shelf:
        """Return the shelf for this architecture and these accelerators; creates it if missing."""
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
        """Return a copy of all shelves with the copies of their agents."""
        other = Shelves(self._packing)
        other._all = {key: shelf.copy(by_order) for key, shelf in self._all.items()}
        return other

    def levels(self, request: Request) -> list[list[Shelf]]:
        """Return the shelves that suit the request, grouped by the accelerators left idle. The fewest come first."""
        levels = self._levels.get(request.group)
        if levels is None:
            by_waste: dict[int, list[Shelf]] = {}
            for shelf in self._all.values():
                if request.architecture in ("", shelf.architecture) and request.kinds <= shelf.kinds:
                    by_waste.setdefault(len(shelf.kinds - request.kinds), []).append(shelf)
            levels = self._levels[request.group] = [by_waste[waste] for waste in sorted(by_waste)]
        return levels
