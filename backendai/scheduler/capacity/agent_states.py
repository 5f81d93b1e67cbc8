"""The agents of a pass: their free amounts after the placements so far, and their order.

Agents with the same architecture and the same kinds of free accelerators share a bucket, sorted by the selection
strategy. A placement updates the bucket instead of sorting it again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from uuid import UUID

from backendai.base.core.slots import Slots
from backendai.scheduler.capacity.agent_state import NO_SHARES
from backendai.scheduler.capacity.agent_state import AgentState as AgentState
from backendai.scheduler.capacity.buckets import Buckets
from backendai.scheduler.capacity.capacity_tree import CapacityTree
from backendai.scheduler.capacity.devices import Shares
from backendai.scheduler.capacity.packing import Packing
from backendai.scheduler.demand import Request
from backendai.scheduler.launches import Launches
from backendai.scheduler.rank import accelerators_in, selection_named, whole_slot_order
from backendai.scheduler.selection import InTurn
from backendai.scheduler.snapshot import NAME, AgentView, Rules


class AgentStates:
    """All agents of the group during one pass, sorted by name. Raises ValueError for an unknown selection
    strategy. ``explains``: refusals say what is missing."""

    explains = True

    def __init__(self, agents: Iterable[AgentView], rules: Rules) -> None:
        by_name = sorted(agents, key=NAME)
        self.all = [AgentState(agent, order, rules) for order, agent in enumerate(by_name)]
        self.has_devices = any(state.book for state in self.all)
        self.removed: dict[tuple[object, ...], dict[str, Sequence[AgentState]]] = {}
        largest = _largest(by_name)
        self.slot_order = whole_slot_order(rules.slot_order, largest)
        self.packing = Packing(self.slot_order, largest, len(self.all))
        self.ranking = selection_named(rules.selection).ranking(self.packing)
        self._next_agent = rules.next_agent
        self.launches = Launches(by_name)
        self._having: dict[frozenset[str], list[AgentState]] = {}
        self._mounting: dict[frozenset[str], list[AgentState]] = {}
        self._nearest: CapacityTree | None = None
        self.takes_turns = isinstance(self.ranking, InTurn)
        if isinstance(self.ranking, InTurn) and self.all:
            self.turn = bisect_left([state.name for state in self.all], rules.next_agent) % len(self.all)
        self._first_turn = self.turn
        self._fill_buckets()

    @cached_property
    def by_id(self) -> dict[UUID, AgentState]:
        """The agents by their id."""
        return {state.id: state for state in self.all}

    @property
    def next_agent(self) -> str:
        """The name of the agent at which round-robin continues; unchanged under other selections."""
        return self._next_agent if self.turn == self._first_turn else self.all[self.turn].name

    @property
    def turn(self) -> int:
        """The position of round-robin; set it back to undo a choice."""
        return self.ranking.following if isinstance(self.ranking, InTurn) else 0

    @turn.setter
    def turn(self, turn: int) -> None:
        if isinstance(self.ranking, InTurn):
            self.ranking.following = turn

    def cost(self, request: Request) -> int:
        """Return the request's amounts packed into one integer (``Packing``); -1 if no agent is large enough. Sets the
        request's ``start``, ``step`` and ``fields``, which the search of buckets uses."""
        if request.cost is None:
            packed = self.packing.cost(request.items)
            request.cost = cost = -1 if packed is None else packed
            request.start, request.step = self.ranking.start(cost), self.ranking.step(cost)
            request.fields = [self.packing.field(name) for name in request.kinds]
        return request.cost

    def book(self, state: AgentState, request: Request, shares: Sequence[Shares] = NO_SHARES, launch: str = "") -> None:
        """Reserve the devices and amounts of a request on this agent for the rest of the pass. Round-robin advances."""
        if shares:
            state.take_devices(shares)
        state.take(request)
        if launch:
            self.launches.count(launch, state.order, request.kernels)
        if self.takes_turns:
            self.ranking.chosen(state.order, len(self.all))
        step, packed = request.step, state.packed - (request.cost or 0)
        # An agent that has given the last of an accelerator changes its bucket.
        took_last = request.kinds and not all([packed & field for field in request.fields])
        if took_last or step is None or state.bucket is None or state.book is not None:
            self._settle(state, request)
            return
        state.packed = packed  # does what ``_settle`` would do for most placements
        if step:
            state.bucket.move(state, state.entry + step)
        if self._nearest is not None:
            self._nearest.shrunk(state)

    def undo(self, state: AgentState, request: Request, shares: Sequence[Shares] = NO_SHARES, launch: str = "") -> None:
        """Free the devices and amounts that ``book`` reserved. The position of round-robin is unchanged; the caller
        resets ``turn``."""
        if launch:
            self.launches.count(launch, state.order, -request.kernels)
        if shares:
            state.take_devices(shares, times=-1)
        self.take(state, request, times=-1)

    def take(self, state: AgentState, request: Request, times: int = 1) -> None:
        """Subtract the request's amounts and kernels but no devices; ``times=-1`` adds them back."""
        state.take(request, times)
        self._settle(state, request)

    def give_back(self, agent_id: UUID, amounts: Mapping[str, int], kernels: int) -> None:
        """Free the amounts that a running session has on an agent. Which devices become free is an estimate. Agents of
        other groups are ignored."""
        state = self.by_id.get(agent_id)
        if state is not None:
            request = Request(Slots(amounts), kernels, "")
            state.return_devices(request)
            self.take(state, request, times=-1)

    def copy(self) -> AgentStates:
        """Return an independent copy of the current state."""
        other = copy(self)
        other.all = [state.copy() for state in self.all]
        other.__dict__.pop("by_id", None)  # the cache holds the agents of the original
        other.ranking = copy(self.ranking)
        other.launches = self.launches.copy()
        other._having, other._mounting = {}, {}
        other._nearest = None
        other.limited = [state for state in other.all if state.max_kernels is not None]
        other.buckets = self.buckets.copy(other.all)
        return other

    def closest(self, request: Request, suits: Callable[[AgentState], bool]) -> tuple[int, AgentState] | None:
        """Return the agent that lacks least for the request, as a pair: its ``feasible.distance`` and the agent. None
        if no agent is suitable. Only agents that take sessions and that ``suits`` accepts are searched."""
        if self._nearest is None:
            self._nearest = CapacityTree(state for state in self.all if state.bucket is not None)
        return self._nearest.closest(request, suits)

    def having_images(self, images: frozenset[str]) -> list[AgentState]:
        """Return the agents that have all these images, sorted by name."""
        having = self._having.get(images)
        if having is None:
            having = self._having[images] = [state for state in self.all if images <= state.images]
        return having

    def mounting(self, features: frozenset[str]) -> list[AgentState]:
        """Return the agents that offer all these features of storage hosts, sorted by name."""
        mounting = self._mounting.get(features)
        if mounting is None:
            mounting = self._mounting[features] = [state for state in self.all if features <= state.storage]
        return mounting

    def _fill_buckets(self) -> None:
        """Put every reachable, schedulable agent into its bucket."""
        self.buckets = Buckets(self.packing)
        self.limited = [state for state in self.all if state.max_kernels is not None]
        for state in self.all:
            state.packed = self.packing.pack(state.free)
            if state.alive and state.schedulable:
                state.entry = self.ranking.entry(state, state.packed, state.order)
                state.bucket = self.buckets.having(state.architecture, accelerators_in(state.free))
                state.bucket.states.append(state)
        self.buckets.sort()

    def _settle(self, state: AgentState, request: Request) -> None:
        """Update the agent's packed amounts, rank and bucket after its free amounts changed."""
        bucket = state.bucket
        if bucket is None:
            return
        packed = self.packing.pack(state.free)
        has_grown = packed > state.packed
        if self._nearest is not None:
            self._nearest.shrunk(state)
            if has_grown:
                self._nearest.grown(state)
        state.packed = packed
        entry = self.ranking.entry(state, packed, state.order)
        if request.kinds:
            kinds = accelerators_in(state.free)
            if kinds != bucket.kinds:
                bucket.remove(state)
                state.entry = entry
                state.bucket = self.buckets.having(state.architecture, kinds)
                state.bucket.put(state)
                return
        if has_grown:
            bucket.remove(state)
            state.entry = entry
            bucket.put(state)
        elif entry != state.entry:
            bucket.move(state, entry)


def _largest(agents: Iterable[AgentView]) -> dict[str, int]:
    """Return by slot the largest capacity of any agent; 0 for slots without capacity."""
    largest: dict[str, int] = {}
    held: dict[str, int] = {}
    for agent in agents:
        for name, amount in agent.capacity.items():
            if amount > largest.get(name, 0):
                largest[name] = amount
        held.update(agent.occupied.items())
        if agent.devices:
            held.update([(device.slot, 0) for device in agent.devices])
    return dict.fromkeys(held, 0) | largest
