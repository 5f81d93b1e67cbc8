"""Backfill: sessions may pass the first in line if they do not delay it.

If enough end times of running sessions are known, the first in line gets a reserved start: the earliest time at which
it fits. A session that ends before that time may use any free slots. Others must leave free what the first in line
needs at that time.

Without a reserved start, the first in line may be able to start whenever any session ends. So its request is reserved
on every agent that could hold one of its kernels when empty. Other sessions may use only the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from backendai.base.core.slots import Slots
from backendai.scheduler.capacity.agent_states import AgentState, AgentStates
from backendai.scheduler.capacity.devices import Shares, is_fractional, is_unique
from backendai.scheduler.choose import Allocation
from backendai.scheduler.demand import Demand, Request
from backendai.scheduler.explaining.shortfall import Refusal
from backendai.scheduler.place import place
from backendai.scheduler.snapshot import AgentView, RunningView, SessionView

_Kept = tuple[AgentState, Request, list[Shares]]
_Steps = list[tuple[datetime, list[RunningView]]]  # moments, and the sessions that end at each


@dataclass(frozen=True, slots=True)
class Start:
    """The reserved start of the first in line: the time, the states of all agents at that time, and the agents chosen
    for the session (``allocations``)."""

    at: datetime
    states: AgentStates
    allocations: list[Allocation]


class Reservation:
    """Slots reserved for the first in line while sessions behind it are placed.

    ``starts_at``: the latest time at which the first in line will start. If it is unknown (None), no session counts as
    ending before it.
    """

    def __init__(self, states: AgentStates, needed: list[_Kept], starts_at: datetime | None) -> None:
        self.starts_at = starts_at
        self._states = states
        self._needed = needed
        self._taken: list[_Kept] = []

    def ends_before(self, session: SessionView, now: datetime) -> bool:
        """Return whether the session certainly ends before the reserved start."""
        run = session.longest_run
        return self.starts_at is not None and run is not None and now + run <= self.starts_at

    def keep(self, kept: bool) -> None:
        """Subtract the reserved amounts from the free ones; with ``kept`` False add them back. Repeated calls change
        nothing.

        Sessions that end before the reserved start may have taken a part of the reserved amounts; only the rest is then
        subtracted.
        """
        if kept == bool(self._taken):
            return
        turn = self._states.turn
        if kept:
            self._taken = [
                (state, _what_is_there(request, state), _devices_there(shares, state))
                for state, request, shares in self._needed
            ]
            for state, request, shares in self._taken:
                self._states.book(state, request, shares)
        else:
            for state, request, shares in self._taken:
                self._states.undo(state, request, shares)
            self._taken = []
        self._states.turn = turn


def earliest_start(
    session: SessionView, demand: Demand, states: AgentStates, running: Iterable[RunningView], now: datetime
) -> Start | None:
    """Return the earliest start of the session, from the known ends of ``running``; None if these do not free
    enough."""
    ends = sorted(((max(each.ends_at, now), each) for each in running if each.ends_at is not None), key=_moment)
    steps = [(at, [each for _, each in same]) for at, same in groupby(ends, key=_moment)]
    before, low, high = states, 0, len(steps)
    found = _start_after(session, demand, before, steps)
    while found is not None and high - low > 1:  # bisection: with each end the free amounts only grow
        middle = (low + high) // 2
        sooner = _start_after(session, demand, before, steps[low:middle])
        if sooner is None:
            before, low = _released(before, steps[low:middle]), middle
        else:
            found, high = sooner, middle
    return found


def reserve(start: Start, states: AgentStates) -> Reservation:
    """Return the reservation for a session whose start is known."""
    then = {state.id: state for state in start.states.all}
    mine = {allocation.state.id for allocation in start.allocations}
    # ``then`` includes the allocations. Sessions that end until then free the rest, so only the difference is kept.
    needed = [_less(state, then[state.id]) for state in states.all if state.id in mine]
    return Reservation(states, needed, start.at)


def reserve_anywhere(
    session: SessionView, demand: Demand, states: AgentStates, agents: Iterable[AgentView]
) -> Reservation:
    """Return the reservation for a session whose start is unknown. It covers every agent that could hold one of the
    session's requests when empty."""
    by_id = {agent.id: agent for agent in agents}
    needed = []
    for state in states.all:
        agent = by_id[state.id]
        if _may_go_to(agent, session):
            held = [request for request in demand.requests if _could_hold(agent, request)]
            if held:
                needed.append(_at_most(state, held))
    return Reservation(states, needed, None)


def _may_go_to(agent: AgentView, session: SessionView) -> bool:
    mounts = session.storage is None or session.storage.features <= agent.storage
    return mounts and (not session.designated or agent.id in session.designated)


def _moment(end: tuple[datetime, RunningView]) -> datetime:
    return end[0]


def _start_after(session: SessionView, demand: Demand, states: AgentStates, steps: _Steps) -> Start | None:
    if not steps:
        return None
    later = _released(states, steps)
    allocations = place(session, demand, later)
    return None if isinstance(allocations, Refusal) else Start(steps[-1][0], later, allocations)


def _released(states: AgentStates, steps: _Steps) -> AgentStates:
    later = states.copy()
    for _, ended in steps:
        for each in ended:
            for agent_id, amounts, kernels in each.allocations:
                later.give_back(agent_id, amounts, kernels)
    return later


def _less(now: AgentState, then: AgentState) -> _Kept:
    """Return the amounts and devices that the agent has free now but not at the reserved start."""
    amounts = {name: max(0, amount - then.free.get(name, 0)) for name, amount in now.free.items()}
    shares: Shares = {}
    if now.book is not None and then.book is not None:
        for slot in now.book.slots:
            later = then.book.available(slot)
            lost = {device: amount - later[device] for device, amount in now.book.available(slot).items()}
            shares[slot] = {device: amount for device, amount in lost.items() if amount > 0}
    return now, Request(Slots(amounts), max(0, then.kernels - now.kernels), ""), [shares]


def _what_is_there(request: Request, state: AgentState) -> Request:
    amounts = {name: min(amount, max(0, state.free.get(name, 0))) for name, amount in request.items}
    return Request(Slots(amounts), request.kernels, "")


def _devices_there(shares: list[Shares], state: AgentState) -> list[Shares]:
    if state.book is None:
        return []
    there: Shares = {}
    for slot, devices in (item for each in shares for item in each.items()):
        available = state.book.available(slot)
        there[slot] = {device: min(amount, max(0, available[device])) for device, amount in devices.items()}
    return [there]


def _could_hold(agent: AgentView, request: Request) -> bool:
    enough = request.wanted.fits(agent.capacity) and request.architecture in ("", agent.architecture)
    return enough and (agent.max_kernels is None or request.kernels <= agent.max_kernels)


def _at_most(state: AgentState, requests: list[Request]) -> _Kept:
    """Return how much of an agent's free amounts these requests could take. Shared devices count as taken completely,
    as the scheduler cannot know which device becomes entirely free first."""
    asked = sum((request.wanted for request in requests), Slots())
    kernels = sum(request.kernels for request in requests)
    if state.max_kernels is not None:
        kernels = min(kernels, max(0, state.max_kernels - state.kernels))
    amounts = {name: min(amount, max(0, state.free.get(name, 0))) for name, amount in asked.items()}
    shares: Shares = {}
    if state.book is not None and any(request.kinds for request in requests):
        for slot in state.book.slots:
            if state.book.is_entangled or (slot in amounts and not _is_whole(slot)):
                amounts[slot] = max(0, state.free.get(slot, 0))
            if slot in amounts:
                shares[slot] = _first(amounts[slot], state.book.available(slot))
    return state, Request(Slots(amounts), kernels, ""), [shares]


def _is_whole(slot: str) -> bool:
    return not is_fractional(slot) and not is_unique(slot)


def _first(amount: int, available: Mapping[str, int]) -> dict[str, int]:
    """Return the amount divided over the devices, by device id. One device after the other is used up."""
    shares = {}
    for device, free in available.items():
        shares[device] = min(max(free, 0), amount)
        amount -= shares[device]
    return shares
