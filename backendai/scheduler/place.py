"""Booking a whole session on agents: every request finds one, or none is booked."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from backendai.scheduler.demand import Demand, Request
from backendai.scheduler.rank import SPREAD, amounts_key
from backendai.scheduler.rooms import Room, Rooms
from backendai.scheduler.shortfall import Refusal, refusal_of


@dataclass(frozen=True, slots=True)
class Seat:
    """A request with the agent it got, and how many better ranked agents had no room for it."""

    request: Request
    room: Room
    passed_over: int


def place(demand: Demand, rooms: Rooms, avoid: frozenset[UUID]) -> list[Seat] | Refusal:
    """Return a seat for each request in the demand's order, booked for the rest of the pass, or why there is none."""
    outcome = _try(demand.requests, rooms, avoid)
    if isinstance(outcome, Refusal) and len(demand.requests) > 1:
        # Small kernels may have taken the only room of a large one: begin with the largest before giving up.
        largest_first = sorted(demand.requests, key=lambda each: amounts_key(each.wanted, SPREAD, rooms.slot_order))
        if tuple(largest_first) != demand.requests:
            outcome = _try(tuple(largest_first), rooms, avoid)
    if isinstance(outcome, Refusal):
        return outcome
    seats = {seat.request: seat for seat in outcome}
    return [seats[request] for request in demand.requests]


def _try(requests: tuple[Request, ...], rooms: Rooms, avoid: frozenset[UUID]) -> list[Seat] | Refusal:
    seats: list[Seat] = []
    for request in requests:
        found = rooms.best(request, avoid)
        if found is None:
            refusal = refusal_of(request, rooms.all, len(seats), len(requests))
            for seat in seats:
                rooms.take(seat.room, seat.request, times=-1)
            return refusal
        room, passed_over = found
        rooms.take(room, request)
        seats.append(Seat(request, room, passed_over))
    return seats
