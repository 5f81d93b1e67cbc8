"""Backfill: sessions pass the first in line as long as they do not delay it.

When the ends of running sessions are known well enough, the first in line gets a reserved start: the earliest moment at
which it fits once all that end by then have ended. A session that ends by then may use whatever is free. Any other
leaves alone what the first in line needs there beyond what becomes free for it.

Without such a moment the first in line could start whenever anybody ends. So on every agent that could hold any of it,
were the agent empty, others leave alone what it asks for: of a slot of which less is free they get nothing, of one of
which more is free they get the rest. What becomes free later then serves the first in line as if nobody had passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from backendai.core.slots import Slots
from backendai.scheduler.choose import Seat
from backendai.scheduler.demand import Demand, Request
from backendai.scheduler.devices import Shares, is_fractional, is_unique
from backendai.scheduler.place import place
from backendai.scheduler.rooms import Room, Rooms
from backendai.scheduler.shortfall import Refusal
from backendai.scheduler.snapshot import AgentView, RunningView, SessionView

_Kept = tuple[Room, Request, list[Shares]]
_Steps = list[tuple[datetime, list[RunningView]]]  # moments, and who ends at each


@dataclass(frozen=True, slots=True)
class Start:
    """The reserved start of a session: when, the agents as they are then, and its seats there."""

    at: datetime
    rooms: Rooms
    seats: list[Seat]


class Reservation:
    """What is kept for the first in line while the others behind it are placed."""

    def __init__(self, rooms: Rooms, needed: list[_Kept], starts_at: datetime | None) -> None:
        self.starts_at = starts_at
        self._rooms = rooms
        self._needed = needed
        self._taken: list[_Kept] = []

    def ends_before(self, session: SessionView, now: datetime) -> bool:
        """Return whether the session is over by the reserved start, whatever happens."""
        run = session.longest_run
        return self.starts_at is not None and run is not None and now + run <= self.starts_at

    def keep(self, kept: bool) -> None:
        """Take what the first in line needs out of what is free, or put it back.

        Sessions that end by the reserved start may have taken of it; then there is less to take.
        """
        if kept == bool(self._taken):
            return
        turn = self._rooms.turn
        if kept:
            self._taken = [
                (room, _what_is_there(request, room), _devices_there(shares, room))
                for room, request, shares in self._needed
            ]
            for room, request, shares in self._taken:
                self._rooms.book(room, request, shares)
        else:
            for room, request, shares in self._taken:
                self._rooms.undo(room, request, shares)
            self._taken = []
        self._rooms.turn = turn


def earliest_start(
    session: SessionView, demand: Demand, rooms: Rooms, running: Iterable[RunningView], now: datetime
) -> Start | None:
    """Return the earliest moment at which the session fits as known ends come, or None when they do not suffice."""
    ends = sorted(((max(each.ends_at, now), each) for each in running if each.ends_at is not None), key=_moment)
    steps = [(at, [each for _, each in same]) for at, same in groupby(ends, key=_moment)]
    before, low, high = rooms, 0, len(steps)
    found = _start_after(session, demand, before, steps)
    while found is not None and high - low > 1:  # by halves: what is free only grows from end to end
        middle = (low + high) // 2
        sooner = _start_after(session, demand, before, steps[low:middle])
        if sooner is None:
            before, low = _released(before, steps[low:middle]), middle
        else:
            found, high = sooner, middle
    return found


def reserve(start: Start, rooms: Rooms) -> Reservation:
    """Return the reservation for a session whose start is known."""
    then = {room.id: room for room in start.rooms.all}
    mine = {seat.room.id for seat in start.seats}
    # At the reserved start its seats are booked: what is less then than now is not covered by what ends until then.
    needed = [_less(room, then[room.id]) for room in rooms.all if room.id in mine]
    return Reservation(rooms, needed, start.at)


def reserve_anywhere(session: SessionView, demand: Demand, rooms: Rooms, agents: Iterable[AgentView]) -> Reservation:
    """Return the reservation for a session that may start whenever others end, on any agent that could hold it."""
    by_id = {agent.id: agent for agent in agents}
    needed = []
    for room in rooms.all:
        agent = by_id[room.id]
        if _may_go_to(agent, session):
            held = [request for request in demand.requests if _could_hold(agent, request)]
            if held:
                needed.append(_at_most(room, held))
    return Reservation(rooms, needed, None)


def _may_go_to(agent: AgentView, session: SessionView) -> bool:
    mounts = session.storage is None or session.storage.features <= agent.storage
    return mounts and (not session.designated or agent.id in session.designated)


def _moment(end: tuple[datetime, RunningView]) -> datetime:
    return end[0]


def _start_after(session: SessionView, demand: Demand, rooms: Rooms, steps: _Steps) -> Start | None:
    if not steps:
        return None
    later = _released(rooms, steps)
    seats = place(session, demand, later)
    return None if isinstance(seats, Refusal) else Start(steps[-1][0], later, seats)


def _released(rooms: Rooms, steps: _Steps) -> Rooms:
    later = rooms.copy()
    for _, ended in steps:
        for each in ended:
            for agent_id, amounts, kernels in each.seats:
                later.give_back(agent_id, amounts, kernels)
    return later


def _less(now: Room, then: Room) -> _Kept:
    """Return what the agent has less of then than now."""
    amounts = {name: max(0, amount - then.free.get(name, 0)) for name, amount in now.free.items()}
    shares: Shares = {}
    if now.book is not None and then.book is not None:
        for slot in now.book.slots:
            later = then.book.available(slot)
            lost = {device: amount - later[device] for device, amount in now.book.available(slot).items()}
            shares[slot] = {device: amount for device, amount in lost.items() if amount > 0}
    return now, Request(Slots(amounts), max(0, then.kernels - now.kernels), ""), [shares]


def _what_is_there(request: Request, room: Room) -> Request:
    amounts = {name: min(amount, max(0, room.free.get(name, 0))) for name, amount in request.items}
    return Request(Slots(amounts), request.kernels, "")


def _devices_there(shares: list[Shares], room: Room) -> list[Shares]:
    if room.book is None:
        return []
    there: Shares = {}
    for slot, devices in (item for each in shares for item in each.items()):
        available = room.book.available(slot)
        there[slot] = {device: min(amount, max(0, available[device])) for device, amount in devices.items()}
    return [there]


def _could_hold(agent: AgentView, request: Request) -> bool:
    enough = request.wanted.fits(agent.capacity) and request.architecture in ("", agent.architecture)
    return enough and (agent.max_kernels is None or request.kernels <= agent.max_kernels)


def _at_most(room: Room, requests: list[Request]) -> _Kept:
    """Return what these requests could take of what the agent has free now.

    Of shared devices that is everything: which of them becomes whole again first is not known.
    """
    asked = sum((request.wanted for request in requests), Slots())
    kernels = sum(request.kernels for request in requests)
    if room.max_kernels is not None:
        kernels = min(kernels, max(0, room.max_kernels - room.kernels))
    amounts = {name: min(amount, max(0, room.free.get(name, 0))) for name, amount in asked.items()}
    shares: Shares = {}
    if room.book is not None and any(request.kinds for request in requests):
        for slot in room.book.slots:
            if room.book.is_entangled or (slot in amounts and not _is_whole(slot)):
                amounts[slot] = max(0, room.free.get(slot, 0))
            if slot in amounts:
                shares[slot] = _first(amounts[slot], room.book.available(slot))
    return room, Request(Slots(amounts), kernels, ""), [shares]


def _is_whole(slot: str) -> bool:
    return not is_fractional(slot) and not is_unique(slot)


def _first(amount: int, available: Mapping[str, int]) -> dict[str, int]:
    """Return the amount as shares of the devices, one after the other."""
    shares = {}
    for device, free in available.items():
        shares[device] = min(max(free, 0), amount)
        amount -= shares[device]
    return shares
