"""The agents as one pass sees them: what each still has after the placements made so far, and in which order they come.

A ranking is a sorted list that is mended after each placement instead of being sorted anew. Whatever fits a request
has at least its amounts, so it lies on one side of the request's own key: the rest of the list is skipped by bisection.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from uuid import UUID

from backendai.scheduler.demand import Request
from backendai.scheduler.rank import FILL, ORDINARY, Key, amounts_key, wasted
from backendai.scheduler.snapshot import AgentView


class Room:
    """One agent within a pass. It reads like an ``AgentView`` whose free amounts and kernels follow the pass."""

    __slots__ = ("alive", "architecture", "free", "id", "kernels", "max_kernels", "name", "order", "schedulable")

    def __init__(self, agent: AgentView, order: int) -> None:
        self.order = order
        self.id = agent.id
        self.name = agent.name
        self.alive = agent.alive
        self.schedulable = agent.schedulable
        self.architecture = agent.architecture
        self.kernels = agent.kernels
        self.max_kernels = agent.max_kernels
        self.free: dict[str, int] = dict(agent.free)

    def fits(self, request: Request) -> bool:
        """Return whether the request finds its amounts and its kernels here now."""
        free = self.free
        for name, amount in request.items:
            if free.get(name, 0) < amount:
                return False
        return self.max_kernels is None or self.kernels + request.kernels <= self.max_kernels

    def take(self, request: Request, times: int = 1) -> None:
        """Take the request's amounts out of what is free; ``times=-1`` gives them back."""
        for name, amount in request.items:
            self.free[name] = self.free.get(name, 0) - amount * times
        self.kernels += request.kernels * times


class Rooms:
    """All agents of the group within one pass, sorted by name."""

    def __init__(self, agents: Iterable[AgentView], direction: int, slot_order: Sequence[str]) -> None:
        by_name = sorted(agents, key=lambda agent: (agent.name, agent.id))
        self.all = [Room(agent, order) for order, agent in enumerate(by_name)]
        offered = {name for room in self.all for name in room.free}
        self._direction = direction
        self.slot_order = tuple(name for name in slot_order if name in offered)
        self._most_wasted = len(offered - ORDINARY)
        self._rankings: dict[tuple[frozenset[str], str], _Ranking] = {}

    def best(self, request: Request, avoid: frozenset[UUID]) -> tuple[Room, int] | None:
        """Return the best agent that fits and how many better ranked ones do not; ``avoid`` is the last resort."""
        ranking = self._ranking(request)
        last_resort = None
        for place in ranking.places(request):
            room = ranking.entries[place][1]
            if room.fits(request):
                if room.id not in avoid:
                    return room, place
                last_resort = last_resort or (room, place)
        return last_resort

    def take(self, room: Room, request: Request, times: int = 1) -> None:
        """Book the request on the agent for the rest of the pass; ``times=-1`` undoes it."""
        room.take(request, times)
        for ranking in self._rankings.values():
            if room in ranking.keys:
                ranking.moved[room] = None

    def _ranking(self, request: Request) -> _Ranking:
        group = request.names, request.architecture
        ranking = self._rankings.get(group)
        if ranking is None:
            open_rooms = [room for room in self.all if room.alive and room.schedulable]
            suitable = [room for room in open_rooms if request.architecture in ("", room.architecture)]
            ranking = _Ranking(suitable, request.names, self._direction, self.slot_order, self._most_wasted)
            self._rankings[group] = ranking
        ranking.mend()
        return ranking


class _Ranking:
    """The order of the agents for all requests that name the same slots and the same architecture."""

    def __init__(
        self, rooms: list[Room], names: frozenset[str], direction: int, slot_order: tuple[str, ...], most_wasted: int
    ) -> None:
        self._names, self._direction, self._slot_order = names, direction, slot_order
        self._most_wasted = most_wasted
        self._last = 1 + max((room.order for room in rooms), default=0)
        self.keys = {room: self._key(room) for room in rooms}
        self.entries: list[tuple[Key, Room]] = sorted((key, room) for room, key in self.keys.items())
        self.moved: dict[Room, None] = {}

    def mend(self) -> None:
        """Put every agent that was booked since the last look where it belongs now."""
        for room in self.moved:
            old, new = self.keys[room], self._key(room)
            if old != new:
                del self.entries[self._place_of(old)]
                self.keys[room] = new
                insort(self.entries, (new, room))
        self.moved.clear()

    def places(self, request: Request) -> Iterator[int]:
        """Yield, in order, the places in ``entries`` at which the request could fit."""
        edge = amounts_key(dict(request.items), self._direction, self._slot_order)
        for waste in range(self._most_wasted + 1):
            if self._direction == FILL:
                yield from range(self._place_of((waste, *edge)), self._place_of((waste + 1,)))
            else:
                yield from range(self._place_of((waste,)), self._place_of((waste, *edge, self._last)))

    def _key(self, room: Room) -> Key:
        amounts = amounts_key(room.free, self._direction, self._slot_order)
        return (wasted(room.free, self._names), *amounts, room.order)

    def _place_of(self, key: Key) -> int:
        return bisect_left(self.entries, (key,))
