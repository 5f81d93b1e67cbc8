"""Places whole sessions: either every request of a session gets an agent, or none does."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from backendai.scheduler.agent_states import AgentStates
from backendai.scheduler.choose import Seat, best
from backendai.scheduler.demand import Demand, Request, architectures_of, request_of_all
from backendai.scheduler.launches import launch_of
from backendai.scheduler.plan import DeviceShares, Pass, Placement, Step, new_tuple
from backendai.scheduler.shortfall import Refusal, refusal_of
from backendai.scheduler.snapshot import SessionView

_NO_DEVICES: dict[UUID, DeviceShares] = {}


def place(session: SessionView, demand: Demand, states: AgentStates) -> list[Seat] | Refusal:
    """Reserve an agent for each request of the session, or for none. Returns the reserved agents in the order of the
    requests, or else why the session does not fit. The reservations last for the rest of the pass."""
    request = demand.only
    if request is None:
        return _place_all(session, demand, states)
    seat = best(request, session, states)
    if seat is None:
        return refusal_of(request, states, 0, 1)
    states.book(seat.state, request, seat.shares, launch_of(session) if session.launch or session.placement else "")
    return [seat]


def placement_of(
    session: SessionView, seats: list[Seat], turn: int, within: Pass, shared: tuple[Step, ...]
) -> Placement:
    """Return the placement of a session on its reserved agents. With one entry in ``seats`` all kernels run on that
    agent, otherwise one kernel on each."""
    kernels = session.kernels
    if len(seats) == 1:
        _, state, passed_over, given = seats[0]
        agents = ((kernels[0].id, state.id),) if len(kernels) == 1 else tuple([(each.id, state.id) for each in kernels])
        chosen: tuple[tuple[str, int], ...] = ((state.name, passed_over),)
        if not given:
            return new_tuple(Placement, (session.id, agents, _NO_DEVICES, turn, within, shared, chosen))
    else:
        agents = tuple([(kernel.id, seat.state.id) for kernel, seat in zip(kernels, seats, strict=True)])
        chosen = tuple([(seat.state.name, seat.passed_over) for seat in seats])
        given = [seat.shares[0] if seat.shares else {} for seat in seats]
    devices = {kernel.id: shares for kernel, shares in zip(kernels, given, strict=True) if shares}
    return Placement(session.id, agents, devices, turn, within, shared, chosen)


def _place_all(session: SessionView, demand: Demand, states: AgentStates) -> list[Seat] | Refusal:
    if demand.flaw is not None:
        return Refusal(demand.flaw, (Step("amounts", False, demand.flaw.message, demand.flaw.code),))
    outcome = _try(session, demand.requests, states)
    if isinstance(outcome, Refusal):
        # Small kernels may have taken the only room of a large one: begin with the largest before giving up.
        largest_first = sorted(demand.requests, key=lambda each: _size(each, states.slot_order), reverse=True)
        if tuple(largest_first) != demand.requests:
            outcome = _try(session, largest_first, states)
    if isinstance(outcome, Refusal):
        return _on_one(session, demand, states) or outcome
    seats = {seat.request: seat for seat in outcome}
    return [seats[request] for request in demand.requests]


def _on_one(session: SessionView, demand: Demand, states: AgentStates) -> list[Seat] | None:
    """Reserve one agent for all kernels of a session, and return it; None if no agent can hold them. Only agents that
    cannot join a network are tried: kernels on one agent need no network."""
    if not demand.requests[0].joins or len(architectures_of(session.kernels)) > 1:
        return None
    alone = frozenset(state.id for state in states.all if not state.joins)
    alone = alone & session.designated if session.designated else alone
    if not alone:
        return None
    request = request_of_all(session, alone)
    seat = best(request, session, states)
    if seat is None:
        return None
    states.book(seat.state, request, seat.shares, launch_of(session))
    return [seat]


def _try(session: SessionView, requests: Sequence[Request], states: AgentStates) -> list[Seat] | Refusal:
    launch = launch_of(session)
    turn = states.turn
    seats: list[Seat] = []
    for request in requests:
        seat = best(request, session, states)
        if seat is None:
            refusal = refusal_of(request, states, len(seats), len(requests))
            for booked in seats:
                states.undo(booked.state, booked.request, booked.shares, launch)
            states.turn = turn
            return refusal
        states.book(seat.state, request, seat.shares, launch)
        seats.append(seat)
    return seats


def _size(request: Request, slot_order: Sequence[str]) -> list[int]:
    return [request.wanted[name] for name in slot_order]
