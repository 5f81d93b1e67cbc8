"""Places whole sessions: either every request of a session gets an agent, or none does."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from backendai.scheduler.capacity.agent_states import AgentStates
from backendai.scheduler.choose import Allocation, best
from backendai.scheduler.demand import Demand, Request, architectures_of, request_of_all
from backendai.scheduler.explaining.shortfall import Refusal, refusal_of
from backendai.scheduler.launches import launch_of
from backendai.scheduler.plan import DeviceShares, Pass, Placement, Step, new_tuple
from backendai.scheduler.snapshot import SessionView

_NO_DEVICES: dict[UUID, DeviceShares] = {}


def place(session: SessionView, demand: Demand, states: AgentStates) -> list[Allocation] | Refusal:
    """Reserve an agent for each request of the session, or for none. Returns the reserved agents in the order of the
    requests, or else why the session does not fit. The reservations last for the rest of the pass."""
    request = demand.only
    if request is None:
        return _place_all(session, demand, states)
    allocation = best(request, session, states)
    if allocation is None:
        return refusal_of(request, states, 0, 1)
    states.book(
        allocation.state, request, allocation.shares, launch_of(session) if session.launch or session.placement else ""
    )
    return [allocation]


def placement_of(
    session: SessionView, allocations: list[Allocation], turn: int, within: Pass, shared: tuple[Step, ...]
) -> Placement:
    """Return the placement of a session on its reserved agents. With one allocation all kernels run on its agent, else
    one kernel on each."""
    kernels = session.kernels
    if len(allocations) == 1:
        _, state, passed_over, given = allocations[0]
        agents = ((kernels[0].id, state.id),) if len(kernels) == 1 else tuple([(each.id, state.id) for each in kernels])
        chosen: tuple[tuple[str, int], ...] = ((state.name, passed_over),)
        if not given:
            return new_tuple(Placement, (session.id, agents, _NO_DEVICES, turn, within, shared, chosen))
    else:
        agents = tuple(
            [(kernel.id, allocation.state.id) for kernel, allocation in zip(kernels, allocations, strict=True)]
        )
        chosen = tuple([(allocation.state.name, allocation.passed_over) for allocation in allocations])
        given = [allocation.shares[0] if allocation.shares else {} for allocation in allocations]
    devices = {kernel.id: shares for kernel, shares in zip(kernels, given, strict=True) if shares}
    return Placement(session.id, agents, devices, turn, within, shared, chosen)


def _place_all(session: SessionView, demand: Demand, states: AgentStates) -> list[Allocation] | Refusal:
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
    allocations = {allocation.request: allocation for allocation in outcome}
    return [allocations[request] for request in demand.requests]


def _on_one(session: SessionView, demand: Demand, states: AgentStates) -> list[Allocation] | None:
    """Reserve one agent for all kernels of a session, and return it; None if no agent can hold them. Only agents that
    cannot join a network are tried: kernels on one agent need no network."""
    if not demand.requests[0].joins or len(architectures_of(session.kernels)) > 1:
        return None
    alone = frozenset(state.id for state in states.all if not state.joins)
    alone = alone & session.designated if session.designated else alone
    if not alone:
        return None
    request = request_of_all(session, alone)
    allocation = best(request, session, states)
    if allocation is None:
        return None
    states.book(allocation.state, request, allocation.shares, launch_of(session))
    return [allocation]


def _try(session: SessionView, requests: Sequence[Request], states: AgentStates) -> list[Allocation] | Refusal:
    launch = launch_of(session)
    turn = states.turn
    allocations: list[Allocation] = []
    for request in requests:
        allocation = best(request, session, states)
        if allocation is None:
            refusal = refusal_of(request, states, len(allocations), len(requests))
            for booked in allocations:
                states.undo(booked.state, booked.request, booked.shares, launch)
            states.turn = turn
            return refusal
        states.book(allocation.state, request, allocation.shares, launch)
        allocations.append(allocation)
    return allocations


def _size(request: Request, slot_order: Sequence[str]) -> list[int]:
    return [request.wanted[name] for name in slot_order]
