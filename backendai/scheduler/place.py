"""Booking a whole session on agents: every request finds one, or none is booked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from backendai.scheduler.choose import best
from backendai.scheduler.demand import Demand, Request
from backendai.scheduler.devices import Shares
from backendai.scheduler.launches import launch_of
from backendai.scheduler.plan import DeviceShares, Placement, Step, Trail, new_tuple
from backendai.scheduler.room import NO_SHARES, Room
from backendai.scheduler.rooms import Rooms
from backendai.scheduler.shortfall import Refusal, refusal_of
from backendai.scheduler.snapshot import SessionView

_NO_DEVICES: dict[UUID, DeviceShares] = {}


class Seat(NamedTuple):
    """A request with the agent it got, how many better ranked agents had no room for it, and each kernel's devices."""

    request: Request
    room: Room
    passed_over: int
    shares: Sequence[Shares] = NO_SHARES


def place(session: SessionView, demand: Demand, rooms: Rooms) -> list[Seat] | Refusal:
    """Return a seat for each request in the demand's order, booked for the rest of the pass, or why there is none."""
    if demand.flaw is not None:
        return Refusal(demand.flaw, (Step("amounts", False, demand.flaw.message, demand.flaw.code),))
    if len(demand.requests) > 1:
        return _place_all(session, demand, rooms)
    request = demand.requests[0]
    found = best(request, session, rooms)
    if found is None:
        return refusal_of(request, rooms, 0, 1)
    room, passed_over, shares = found
    rooms.book(room, request, shares, launch_of(session) if session.launch or session.placement else "")
    return [new_tuple(Seat, (request, room, passed_over, shares))]


def placement_of(session: SessionView, seats: list[Seat], trail: Trail) -> Placement:
    """Return the placement of a session that got these seats: on one seat all its kernels, or one on each."""
    kernels = session.kernels
    if len(seats) == 1:
        seat = seats[0]
        agent = seat.room.id
        agents = {kernels[0].id: agent} if len(kernels) == 1 else {kernel.id: agent for kernel in kernels}
        if not seat.shares:
            return new_tuple(Placement, (session.id, agents, trail, _NO_DEVICES))
        shares = zip(kernels, seat.shares, strict=True)
    else:
        agents = {kernel.id: seat.room.id for kernel, seat in zip(kernels, seats, strict=True)}
        shares = zip(kernels, [seat.shares[0] if seat.shares else {} for seat in seats], strict=True)
    return Placement(session.id, agents, trail, {kernel.id: given for kernel, given in shares if given})


def _place_all(session: SessionView, demand: Demand, rooms: Rooms) -> list[Seat] | Refusal:
    outcome = _try(session, demand.requests, rooms)
    if isinstance(outcome, Refusal):
        # Small kernels may have taken the only room of a large one: begin with the largest before giving up.
        largest_first = sorted(demand.requests, key=lambda each: _size(each, rooms.slot_order), reverse=True)
        if tuple(largest_first) != demand.requests:
            outcome = _try(session, largest_first, rooms)
    if isinstance(outcome, Refusal):
        return outcome
    seats = {seat.request: seat for seat in outcome}
    return [seats[request] for request in demand.requests]


def _try(session: SessionView, requests: Sequence[Request], rooms: Rooms) -> list[Seat] | Refusal:
    launch = launch_of(session)
    turn = rooms.turn
    seats: list[Seat] = []
    for request in requests:
        found = best(request, session, rooms)
        if found is None:
            refusal = refusal_of(request, rooms, len(seats), len(requests))
            for seat in seats:
                rooms.undo(seat.room, seat.request, seat.shares, launch)
            rooms.turn = turn
            return refusal
        room, passed_over, shares = found
        rooms.book(room, request, shares, launch)
        seats.append(Seat(request, room, passed_over, shares))
    return seats


def _size(request: Request, slot_order: Sequence[str]) -> list[int]:
    return [request.wanted[name] for name in slot_order]
