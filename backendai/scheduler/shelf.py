"""Shelves: agents that waste alike beside a request, each shelf in the order of the selection."""

from __future__ import annotations

from bisect import bisect_left

from backendai.scheduler.demand import Request
from backendai.scheduler.room import Room
from backendai.scheduler.selection import Entry


class Shelf:
    """Agents of one architecture with the same kinds of accelerators left; ``entries`` are their ranks."""

    __slots__ = ("architecture", "entries", "kinds", "rooms")

    def __init__(self, architecture: str, kinds: frozenset[str]) -> None:
        self.architecture, self.kinds = architecture, kinds
        self.entries: list[Entry] = []
        self.rooms: list[Room] = []

    def put(self, room: Room) -> None:
        """Put the agent where its entry belongs."""
        place = bisect_left(self.entries, room.entry)
        self.entries.insert(place, room.entry)
        self.rooms.insert(place, room)

    def remove(self, room: Room) -> None:
        """Take the agent away; its entry must be that with which it was put here."""
        place = bisect_left(self.entries, room.entry)
        del self.entries[place], self.rooms[place]

    def move(self, room: Room, entry: Entry) -> None:
        """Put an agent of this shelf where its new entry belongs."""
        entries = self.entries
        place = bisect_left(entries, room.entry)
        room.entry = entry
        if (not place or entries[place - 1] < entry) and (place + 1 == len(entries) or entry < entries[place + 1]):
            entries[place] = entry
        else:
            del entries[place], self.rooms[place]
            self.put(room)

    def sort(self) -> None:
        """Sort agents that were added to ``rooms`` in any order."""
        self.rooms.sort(key=lambda room: room.entry)
        self.entries = [room.entry for room in self.rooms]


class Shelves:
    """All shelves of a pass."""

    def __init__(self) -> None:
        self._all: dict[tuple[str, frozenset[str]], Shelf] = {}
        self._levels: dict[tuple[str, frozenset[str]], list[list[Shelf]]] = {}

    def having(self, architecture: str, kinds: frozenset[str]) -> Shelf:
        """Return the shelf for such agents, a new one when there is none."""
        shelf = self._all.get((architecture, kinds))
        if shelf is None:
            shelf = self._all[architecture, kinds] = Shelf(architecture, kinds)
            self._levels.clear()
        return shelf

    def sort(self) -> None:
        """Sort every shelf."""
        for shelf in self._all.values():
            shelf.sort()

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
