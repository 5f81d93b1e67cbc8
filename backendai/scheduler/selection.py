"""Selections: strategies that rank the agents on which a session fits.

Each selection is a file in ``selections``, chosen by its name. The built-in ones compare the integers of ``Packing``; a
new selection can pass a function of the agent to ``by_key``. Under every selection, agents whose accelerators would
remain unused come last.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from backendai.scheduler.capacity.packing import Packing

Entry = Any  # an integer or a tuple of integers, of one kind within a ranking; ends with the agent's place by name


class Candidate(Protocol):
    """An agent as the key function of a selection sees it."""

    @property
    def name(self) -> str: ...
    @property
    def free(self) -> Mapping[str, int]: ...
    @property
    def kernels(self) -> int: ...


class Ranking(Protocol):
    """An order of agents by their ranks (entries): the smallest comes first.

    ``cost`` is the packed request, ``packed`` an agent's packed free amounts (``Packing``), ``order`` its position by
    name.
    """

    def entry(self, candidate: Candidate, packed: int, order: int) -> Entry:
        """Return the rank of an agent with these free amounts."""

    def start(self, cost: int) -> Entry:
        """Return the rank (entry) at which the search for an agent starts. Agents with a smaller rank have no room for
        a request of ``cost``; under round-robin, their turn comes later."""

    def step(self, cost: int) -> Entry | None:
        """Return by how much an agent's rank changes when it takes the request; None if the rank must be computed
        again."""

    def ahead(self, entries: Sequence[Entry], entry: Entry) -> int:
        """Return how many of ``entries`` rank better than ``entry``."""

    def rank(self, entry: Entry) -> Entry:
        """Return a key by which ranks from several lists can be compared."""

    def chosen(self, order: int, count: int) -> None:
        """Record which of ``count`` agents was chosen, by its position."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A strategy for choosing agents. ``label``: one line for forms. ``ranking``: the function that creates a
    ``Ranking`` from packing."""

    name: str
    label: str
    ranking: Callable[[Packing], Ranking]


KeyOf = Callable[[Candidate, Sequence[str]], tuple[int, ...]]


def by_key(function: KeyOf) -> Callable[[Packing], Ranking]:
    """Return a ranking by a function of agent and slot order. The smallest key comes first; agents with equal
    keys are sorted by name."""

    def ranking(packing: Packing) -> Ranking:
        return ByKey(function, packing.slot_order)

    return ranking


class LeastLeft:
    """Ranks agents with the least free amounts first. The most precious slot is compared first."""

    def __init__(self, packing: Packing) -> None:
        self._shift = packing.order_bits

    def entry(self, candidate: Candidate, packed: int, order: int) -> Entry:
        return packed << self._shift | order

    def start(self, cost: int) -> Entry:
        return cost << self._shift

    def step(self, cost: int) -> Entry | None:
        return -cost << self._shift

    def ahead(self, entries: Sequence[Entry], entry: Entry) -> int:
        return bisect_left(entries, entry)

    def rank(self, entry: Entry) -> Entry:
        return entry

    def chosen(self, order: int, count: int) -> None:
        pass


class MostLeft(LeastLeft):
    """Ranks agents with the most free amounts first. The most precious slot is compared first."""

    def __init__(self, packing: Packing) -> None:
        super().__init__(packing)
        self._top = packing.top

    def entry(self, candidate: Candidate, packed: int, order: int) -> Entry:
        return self._top - packed << self._shift | order

    def start(self, cost: int) -> Entry:
        return 0

    def step(self, cost: int) -> Entry | None:
        return cost << self._shift


class InTurn:
    """Ranks agents by name, beginning at the position ``following``."""

    def __init__(self, packing: Packing) -> None:
        self.following = 0

    def entry(self, candidate: Candidate, packed: int, order: int) -> Entry:
        return order

    def start(self, cost: int) -> Entry:
        return self.following

    def step(self, cost: int) -> Entry | None:
        return 0

    def ahead(self, entries: Sequence[Entry], entry: Entry) -> int:
        ahead = bisect_left(entries, entry) - bisect_left(entries, self.following)
        return ahead if entry >= self.following else ahead + len(entries)

    def rank(self, entry: Entry) -> Entry:
        return entry < self.following, entry

    def chosen(self, order: int, count: int) -> None:
        self.following = (order + 1) % count


class ByKey:
    """Ranks agents with the smallest key first; agents with equal keys are sorted by name."""

    def __init__(self, function: KeyOf, slot_order: tuple[str, ...]) -> None:
        self._function, self._slot_order = function, slot_order

    def entry(self, candidate: Candidate, packed: int, order: int) -> Entry:
        return *self._function(candidate, self._slot_order), order

    def start(self, cost: int) -> Entry:
        return ()

    def step(self, cost: int) -> Entry | None:
        return None

    def ahead(self, entries: Sequence[Entry], entry: Entry) -> int:
        return bisect_left(entries, entry)

    def rank(self, entry: Entry) -> Entry:
        return entry

    def chosen(self, order: int, count: int) -> None:
        pass
