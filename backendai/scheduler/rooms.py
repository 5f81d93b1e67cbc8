"""The agents of a pass: their free amounts after the placements so far, and their order.

Agents of one architecture with the same kinds of free accelerators are on one shelf, in the order of the selection.
After each placement the shelf is updated instead of being sorted again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from uuid import UUID

from backendai.core.slots import Slots
from backendai.scheduler.demand import Request
from backendai.scheduler.devices import Shares
from backendai.scheduler.launches import Launches
from backendai.scheduler.nearest import Nearest
from backendai.scheduler.options import own_options
from backendai.scheduler.packing import Packing
from backendai.scheduler.rank import accelerators_in, selection_named, whole_slot_order
from backendai.scheduler.room import NO_SHARES
from backendai.scheduler.room import Room as Room
from backendai.scheduler.selection import InTurn
from backendai.scheduler.shelf import Shelves
from backendai.scheduler.snapshot import NAME, AgentView, Rules


class Rooms:
    """All agents of the group during one pass, sorted by name. Raises ValueError for an unknown selection or an invalid
    option."""

    def __init__(self, agents: Iterable[AgentView], rules: Rules) -> None:
        by_name = sorted(agents, key=NAME)
        self.all = [Room(agent, order, rules) for order, agent in enumerate(by_name)]
        self.has_devices = any(room.book for room in self.all)
        self.fixed_counts: dict[tuple[object, ...], dict[str, int]] = {}
        largest = _largest(by_name)
        self.slot_order = whole_slot_order(rules.slot_order, largest)
        self.packing = Packing(self.slot_order, largest, len(self.all))
        selection = selection_named(rules.selection)
        self.ranking = selection.ranking(self.packing, own_options(selection.options, rules.options))
        self._next_agent = rules.next_agent
        self.launches = Launches(by_name)
        self._having: dict[frozenset[str], list[Room]] = {}
        self._mounting: dict[frozenset[str], list[Room]] = {}
        self._nearest: Nearest | None = None
        self.takes_turns = isinstance(self.ranking, InTurn)
        if isinstance(self.ranking, InTurn) and self.all:
            self.turn = bisect_left([room.name for room in self.all], rules.next_agent) % len(self.all)
        self._first_turn = self.turn
        self._shelve()

    @cached_property
    def by_id(self) -> dict[UUID, Room]:
        """The agents by their id."""
        return {room.id: room for room in self.all}

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
        """Return the request's amounts packed into one number, -1 if they exceed every agent. Sets its ``start``,
        ``step`` and ``fields`` for the search on shelves."""
        if request.cost is None:
            packed = self.packing.cost(request.items)
            request.cost = cost = -1 if packed is None else packed
            request.start, request.step = self.ranking.start(cost), self.ranking.step(cost)
            request.fields = [self.packing.field(name) for name in request.kinds]
        return request.cost

    def book(self, room: Room, request: Request, shares: Sequence[Shares] = NO_SHARES, launch: str = "") -> None:
        """Book a seat for the rest of the pass and advance round-robin."""
        if shares:
            room.take_devices(shares)
        room.take(request)
        if launch:
            self.launches.count(launch, room.order, request.kernels)
        if self.takes_turns:
            self.ranking.chosen(room.order, len(self.all))
        step, packed = request.step, room.packed - (request.cost or 0)
        took_last = request.kinds and not all([packed & field for field in request.fields])  # so it changes its shelf
        if took_last or step is None or room.shelf is None or room.book is not None:
            self._settle(room, request)
            return
        room.packed = packed  # the short form of ``_settle``, enough for most bookings
        if step:
            room.shelf.move(room, room.entry + step)
        if self._nearest is not None:
            self._nearest.shrunk(room)

    def undo(self, room: Room, request: Request, shares: Sequence[Shares] = NO_SHARES, launch: str = "") -> None:
        """Undo ``book``; the caller sets ``turn`` back."""
        if launch:
            self.launches.count(launch, room.order, -request.kernels)
        if shares:
            room.take_devices(shares, times=-1)
        self.take(room, request, times=-1)

    def take(self, room: Room, request: Request, times: int = 1) -> None:
        """Subtract the request's amounts and kernels but no devices; ``times=-1`` adds them back."""
        room.take(request, times)
        self._settle(room, request)

    def give_back(self, agent_id: UUID, amounts: Mapping[str, int], kernels: int) -> None:
        """Free what a running session holds on an agent. Agents outside the group are ignored; devices are
        estimated."""
        room = self.by_id.get(agent_id)
        if room is not None:
            request = Request(Slots(amounts), kernels, "")
            room.return_devices(request)
            self.take(room, request, times=-1)

    def copy(self) -> Rooms:
        """Return an independent copy of the current state."""
        other = copy(self)
        other.all = [room.copy() for room in self.all]
        other.__dict__.pop("by_id", None)  # it holds the rooms of the original
        other.ranking = copy(self.ranking)
        other.launches = self.launches.copy()
        other._having, other._mounting = {}, {}
        other._nearest = None
        other.limited = [room for room in other.all if room.max_kernels is not None]
        other.shelves = self.shelves.copy(other.all)
        return other

    def closest(self, request: Request, suits: Callable[[Room], bool]) -> tuple[int, Room] | None:
        """Return the distance and the agent that lacks least among those that ``suits`` accepts; None if there is none.
        Only agents that take sessions are searched."""
        if self._nearest is None:
            self._nearest = Nearest(room for room in self.all if room.shelf is not None)
        return self._nearest.closest(request, suits)

    def having_images(self, images: frozenset[str]) -> list[Room]:
        """Return the agents that have all these images, by name."""
        having = self._having.get(images)
        if having is None:
            having = self._having[images] = [room for room in self.all if images <= room.images]
        return having

    def mounting(self, features: frozenset[str]) -> list[Room]:
        """Return the agents that offer all these features of storage hosts, by name."""
        mounting = self._mounting.get(features)
        if mounting is None:
            mounting = self._mounting[features] = [room for room in self.all if features <= room.storage]
        return mounting

    def _shelve(self) -> None:
        """Put every reachable, schedulable agent on its shelf."""
        self.shelves = Shelves(self.packing)
        self.limited = [room for room in self.all if room.max_kernels is not None]
        for room in self.all:
            room.packed = self.packing.pack(room.free)
            if room.alive and room.schedulable:
                room.entry = self.ranking.entry(room, room.packed, room.order)
                room.shelf = self.shelves.having(room.architecture, accelerators_in(room.free))
                room.shelf.rooms.append(room)
        self.shelves.sort()

    def _settle(self, room: Room, request: Request) -> None:
        """Update the agent's packed amounts, rank and shelf after its free amounts changed."""
        shelf = room.shelf
        if shelf is None:
            return
        packed = self.packing.pack(room.free)
        has_grown = packed > room.packed
        if self._nearest is not None:
            self._nearest.shrunk(room)
            if has_grown:
                self._nearest.grown(room)
        room.packed = packed
        entry = self.ranking.entry(room, packed, room.order)
        if request.kinds:
            kinds = accelerators_in(room.free)
            if kinds != shelf.kinds:
                shelf.remove(room)
                room.entry = entry
                room.shelf = self.shelves.having(room.architecture, kinds)
                room.shelf.put(room)
                return
        if has_grown:
            shelf.remove(room)
            room.entry = entry
            shelf.put(room)
        elif entry != room.entry:
            shelf.move(room, entry)


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
