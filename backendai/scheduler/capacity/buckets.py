"""Buckets: agents with the same kinds of free accelerators, sorted by the selection strategy.

Each bucket is divided into blocks. A block stores the maximum of each slot, so that it can be skipped if that is too
small for a request. When an agent's free amounts fall, the stored maximum may be too high, but never too low. It is
measured again after enough searches without a result.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from backendai.scheduler.capacity.agent_state import AgentState
from backendai.scheduler.capacity.packing import Packing
from backendai.scheduler.demand import Request
from backendai.scheduler.selection import Entry

BLOCK = 64
_PATIENCE = 16  # searches without a result; each costs about an eighth of measuring a block


class Bucket:
    """Agents of one architecture with the same kinds of free accelerators.

    ``states`` and ``entries``: the agents and their ranks, sorted by rank. ``bounds``: for each block of ``BLOCK``
    agents an upper bound of each slot's free amount, packed into one integer (``Packing``). ``last_found``: the
    position of the last match; ``move`` tries this position first.
    """

    __slots__ = ("_failed_searches", "_packing", "architecture", "bounds", "entries", "kinds", "last_found", "states")

    def __init__(self, architecture: str, kinds: frozenset[str], packing: Packing) -> None:
        self.architecture, self.kinds = architecture, kinds
        self.entries: list[Entry] = []
        self.states: list[AgentState] = []
        self.bounds: list[int] = []
        self.last_found = 0
        self._failed_searches: list[int] = []
        self._packing = packing

    def sort(self) -> None:
        """Sort ``states``, and derive ``entries`` and ``bounds`` from them."""
        self.states.sort(key=lambda state: state.entry)
        self.entries = [state.entry for state in self.states]
        self.bounds = [self._measured(at) for at in range(0, len(self.states), BLOCK)]
        self._failed_searches = [0] * len(self.bounds)

    def copy(self, by_order: Sequence[AgentState]) -> Bucket:
        """Return a copy of the bucket. ``by_order``: the copies of all agents, by their ``order``."""
        other = Bucket(self.architecture, self.kinds, self._packing)
        other.entries, other.bounds = self.entries.copy(), self.bounds.copy()
        other.states = [by_order[state.order] for state in self.states]
        other._failed_searches = self._failed_searches.copy()
        for state in other.states:
            state.bucket = other
        return other

    def put(self, state: AgentState) -> None:
        """Insert the agent at the position of its rank."""
        place = bisect_left(self.entries, state.entry)
        self.entries.insert(place, state.entry)
        self.states.insert(place, state)
        if len(self.states) > BLOCK * len(self.bounds):
            self.bounds.append(0)
            self._failed_searches.append(0)
        self._cover((place, *_begins(place, len(self.states))))

    def remove(self, state: AgentState) -> None:
        """Remove the agent; its rank must be unchanged since it was inserted."""
        place = bisect_left(self.entries, state.entry)
        del self.entries[place], self.states[place]
        self._cover(_ends(place, len(self.states)))

    def move(self, state: AgentState, entry: Entry) -> None:
        """Move the agent to its new rank ``entry`` after its free amounts fell."""
        entries, place = self.entries, self.last_found
        if place >= len(entries) or entries[place] != state.entry:
            place = bisect_left(entries, state.entry)
        state.entry = entry
        if (not place or entries[place - 1] < entry) and (place + 1 == len(entries) or entry < entries[place + 1]):
            entries[place] = entry
            return
        del entries[place], self.states[place]
        target = bisect_left(entries, entry)
        entries.insert(target, entry)
        self.states.insert(target, state)
        self._cover((target, *(_begins(target, place + 1) if target < place else _ends(place, target))))

    def count_failed_search(self, block: int) -> None:
        """Count a search in a block whose bound was high enough, although no agent fitted. After ``_PATIENCE`` such
        searches the bound is measured again."""
        self._failed_searches[block] += 1
        if self._failed_searches[block] == _PATIENCE:
            self._failed_searches[block] = 0
            self.bounds[block] = self._measured(block * BLOCK)

    def _cover(self, places: Iterable[int]) -> None:
        """Raise the bounds of blocks into which agents have moved. ``places``: the new positions of these agents."""
        bounds, guards = self.bounds, self._packing.guards
        for place in places:
            block, packed = place // BLOCK, self.states[place].packed
            if (bounds[block] | guards) - packed & guards != guards:  # as in ``Packing.has_room``
                bounds[block] = self._packing.most_of((bounds[block], packed))

    def _measured(self, begin: int) -> int:
        return self._packing.most_of([state.packed for state in self.states[begin : begin + BLOCK]])


def _begins(first: int, end: int) -> range:
    """Return the first position of each block that begins behind ``first`` and before ``end``. An insertion at
    ``first`` moves an agent into each of these blocks."""
    return range(first - first % BLOCK + BLOCK, end, BLOCK)


def _ends(first: int, end: int) -> range:
    """Return the last position of each block that ends at or behind ``first`` and before ``end``. A removal at
    ``first`` moves an agent into each of these blocks."""
    return range(first - first % BLOCK + BLOCK - 1, end, BLOCK)


class Buckets:
    """All buckets of a pass."""

    def __init__(self, packing: Packing) -> None:
        self._packing = packing
        self._all: dict[tuple[str, frozenset[str]], Bucket] = {}
        self._levels: dict[tuple[str, frozenset[str]], list[list[Bucket]]] = {}

    def having(self, architecture: str, kinds: frozenset[str]) -> Bucket:
        """Return the bucket for this architecture and these kinds of accelerators; creates it if missing."""
        bucket = self._all.get((architecture, kinds))
        if bucket is None:
            bucket = self._all[architecture, kinds] = Bucket(architecture, kinds, self._packing)
            self._levels.clear()
        return bucket

    def sort(self) -> None:
        """Sort every bucket."""
        for bucket in self._all.values():
            bucket.sort()

    def copy(self, by_order: Sequence[AgentState]) -> Buckets:
        """Return a copy of all buckets. ``by_order``: the copies of all agents, by their ``order``."""
        other = Buckets(self._packing)
        other._all = {key: bucket.copy(by_order) for key, bucket in self._all.items()}
        return other

    def levels(self, request: Request) -> list[list[Bucket]]:
        """Return the buckets that suit the request, in groups. The first group leaves the fewest kinds of accelerators
        unused."""
        levels = self._levels.get(request.group)
        if levels is None:
            by_waste: dict[int, list[Bucket]] = {}
            for bucket in self._all.values():
                if request.architecture in ("", bucket.architecture) and request.kinds <= bucket.kinds:
                    by_waste.setdefault(len(bucket.kinds - request.kinds), []).append(bucket)
            levels = self._levels[request.group] = [by_waste[waste] for waste in sorted(by_waste)]
        return levels
