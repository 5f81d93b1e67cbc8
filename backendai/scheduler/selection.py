"""What decides on which of the agents that fit a session starts: a selection ranks the agents.

A selection is one file of ``selections``, chosen by its name. The usual ones rank in whole numbers, into which
``Packing`` puts all amounts of an agent; a new one gives a function of the agent to ``by_key``. An agent whose
accelerators would lie idle beside the session comes later in any case: that is not the selection's to decide.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from backendai.scheduler.options import Option
from backendai.scheduler.packing import Packing

Entry = Any  # an integer or a tuple of integers, of one kind within a ranking; ends with the agent's place by name


class Candidate(Protocol):
    """An agent as the function of a new selection reads it."""

    @property
    def name(self) -> str: ...
    @property
    def free(self) -> Mapping[str, int]: ...
    @property
    def kernels(self) -> int: ...


class Ranking(Protocol):
    """The order of agents: the smaller entry is the better agent. ``cost`` is a request as ``Packing`` packs it."""

    def entry(self, candidate: Candidate, packed: int, order: int) -> Entry:
        """Return where an agent stands that has ``packed`` free."""

    def start(self, cost: int) -> Entry:
        """Return the entry before which no agent has room for the request, or from which agents take turns."""

    def step(self, cost: int) -> Entry | None:
        """Return what is added to the entry of an agent that takes the request; None where one must ask anew."""

    def ahead(self, entries: Sequence[Entry], entry: Entry) -> int:
        """Return how many of the entries are better."""

    def rank(self, entry: Entry) -> Entry:
        """Return what compares entries of several lists."""

    def chosen(self, order: int, count: int) -> None:
        """Note that the agent was taken, out of ``count``."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A way to choose an agent. ``label`` is one line for forms. ``ranking`` gets the packing and the options.

    ``takes_turns``: it goes on where the last pass ended.
    """

    name: str
    label: str
    ranking: Callable[[Packing, Mapping[str, object]], Ranking]
    options: tuple[Option, ...] = ()
    takes_turns: bool = False


KeyOf = Callable[[Candidate, Sequence[str], Mapping[str, object]], tuple[int, ...]]


def by_key(function: KeyOf) -> Callable[[Packing, Mapping[str, object]], Ranking]:
    """Return the ranking by a function of agent, slot order and options; the smallest key wins, equals by name."""

    def ranking(packing: Packing, options: Mapping[str, object]) -> Ranking:
        return ByKey(function, packing.slot_order, options)

    return ranking


class LeastLeft:
    """The agent with the least left first, the most precious slot deciding."""

    def __init__(self, packing: Packing, options: Mapping[str, object]) -> None:
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
    """The agent with the most left first, the most precious slot deciding."""

    def __init__(self, packing: Packing, options: Mapping[str, object]) -> None:
        super().__init__(packing, options)
        self._top = packing.top

    def entry(self, candidate: Candidate, packed: int, order: int) -> Entry:
        return self._top - packed << self._shift | order

    def start(self, cost: int) -> Entry:
        return 0

    def step(self, cost: int) -> Entry | None:
        return cost << self._shift


class InTurn:
    """One agent after the other by name, whatever they have left. ``following`` is the place whose turn it is."""

    def __init__(self, packing: Packing, options: Mapping[str, object]) -> None:
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
    """The agent with the smallest key first, as a function of the agent computes it."""

    def __init__(self, function: KeyOf, slot_order: tuple[str, ...], options: Mapping[str, object]) -> None:
        self._function, self._slot_order, self._options = function, slot_order, options

    def entry(self, candidate: Candidate, packed: int, order: int) -> Entry:
        return *self._function(candidate, self._slot_order, self._options), order

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
