"""Decides whether a session could ever start, by placing it on all agents as if they were empty. Lost agents are
included.

A session that fails this check does not wait for others to end, so it does not hold back others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from uuid import UUID

from backendai.base.core.messages import Message
from backendai.base.core.slots import Slots
from backendai.scheduler.capacity.agent_states import AgentState
from backendai.scheduler.capacity.feasible import (
    broken_devices,
    describe_request,
    distance,
    shortage_details,
    shortages,
)
from backendai.scheduler.capacity.filters import FIXED_FILTERS, NO_JOIN, removed_by, ruled_out
from backendai.scheduler.demand import Demand, Request
from backendai.scheduler.plan import Reason
from backendai.scheduler.snapshot import NAME, AgentView


@dataclass(frozen=True, slots=True)
class Kind:
    """Agents with equal capacity, devices, architecture and state. ``empty``: one of them without kernels."""

    empty: AgentState
    capacity: Slots
    agents: tuple[AgentView, ...]

    @property
    def count(self) -> int:
        """The number of the agents."""
        return len(self.agents)


def kinds_of(agents: Iterable[AgentView]) -> tuple[Kind, ...]:
    """Return the agents grouped by capacity, devices, architecture and state. The first agent by name represents each
    group."""
    alike: dict[tuple[object, ...], list[AgentView]] = {}
    for agent in sorted(agents, key=NAME):
        features = (
            agent.architecture,
            agent.alive,
            agent.schedulable,
            agent.draining,
            agent.unhealthy,
            agent.fault,
            agent.max_kernels,
            agent.joins,
            agent.capacity,
            _devices_of(agent),
        )
        alike.setdefault(features, []).append(agent)
    return tuple(_kind(same, order) for order, same in enumerate(alike.values()))


def outlook(demand: Demand, kinds: tuple[Kind, ...], group: str) -> Reason | None:
    """Return why the session could not start even on empty agents; None if it could. For several kernels, None means
    only that no reason was found."""
    if not kinds:
        return Reason(
            "no-agent",
            Message("Resource group {group} has no agents: none is registered yet.", group=group),
            {"agents": 0},
        )
    for request in demand.requests:
        reason = _too_big_for_any(request, kinds)
        if reason is not None:
            return reason
    if not _hold_together(demand, kinds):
        return _too_big_for_all(demand, kinds)
    open_ones = tuple([kind for kind in kinds if kind.empty.alive and kind.empty.schedulable])
    if len(open_ones) < len(kinds) and not _hold(demand, open_ones):  # all agents together could: just checked
        return _not_enough_open(demand, kinds, open_ones)
    if any(each.joins for each in demand.requests) and not _hold_joined(demand, open_ones):
        return _not_enough_joined(open_ones)
    return None


def no_designated_agent(designated: Collection[UUID], group: str) -> Reason:
    """Return the reason for a session whose designated agents are all outside the group."""
    unknown = sorted(map(str, designated))
    message = Message(
        "None of the designated agents is in resource group {group} ({unknown}).",
        group=group,
        unknown=unknown,
    )
    return Reason("designated-agent-unknown", message, {"unknown": unknown}, never=True)


def _devices_of(agent: AgentView) -> tuple[tuple[str, int, int], ...]:
    """Return the slot and capacity of each device, and a number that is equal for entries of the same device."""
    places: dict[str, int] = {}
    return tuple(
        [(device.slot, device.capacity, places.setdefault(device.id, len(places))) for device in agent.devices]
    )


def _kind(same: list[AgentView], order: int) -> Kind:
    devices = tuple(replace(device, taken=0) for device in same[0].devices)
    empty = replace(same[0], occupied=Slots(), kernels=0, devices=devices)
    return Kind(AgentState(empty, order), same[0].capacity, tuple(same))


def _too_big_for_any(request: Request, kinds: tuple[Kind, ...]) -> Reason | None:
    suitable = [kind.empty for kind in kinds if _suits(kind, request)]
    if not suitable:
        return _none_suits(request, kinds)
    if any(state.fits(request) for state in suitable):
        return None
    closest = min(suitable, key=lambda state: (distance(state, request), state.name))
    missing = shortages(closest, request)
    if not missing:
        message = Message(
            "{kernels} kernels are too many for one agent: {closest}, which has the resources, takes at "
            "most {max_kernels}.",
            kernels=request.kernels,
            closest=closest.name,
            max_kernels=closest.max_kernels,
        )
        details = {"agent": closest.name, "wanted": request.kernels, "limit": closest.max_kernels}
        return Reason("too-many-kernels", message, details, never=True)
    lacking = Message.joined(map(str, missing), "; ")
    message = Message(
        "No agent is large enough, even when empty: {closest} comes closest ({lacking}).",
        closest=closest.name,
        lacking=lacking,
    )
    message = Message.joined([message, broken_devices(suitable, [each.name for each in missing])])
    return Reason("bigger-than-any-agent", message, shortage_details(closest.name, missing), never=True)


def _none_suits(request: Request, kinds: tuple[Kind, ...]) -> Reason:
    offered = sorted({kind.empty.architecture for kind in kinds if kind.empty.architecture})
    message = Message(
        "The image needs architecture {architecture}; no agent that it may run on has it (offered: {offered}).",
        architecture=request.architecture,
        offered=offered or Message("none"),
    )
    details: dict[str, object] = {"wanted": request.architecture, "offered": offered, "agents": _count(kinds)}
    return Reason("no-agent-with-architecture", message, details, never=True)


def _too_big_for_all(demand: Demand, kinds: tuple[Kind, ...]) -> Reason:
    wanted = len(demand.requests)
    limit = _kernel_limit(demand, kinds)
    details: dict[str, object] = {"kernels": wanted, "limit": limit, "agents": _count(kinds)}
    if limit < wanted:
        least = describe_request(_least(demand))
        message = Message(
            "{wanted} kernels of at least {least} are too many: the agents, all empty, hold at most {limit}.",
            wanted=wanted,
            least=least,
            limit=limit,
        )
    else:
        missing = demand.total.shortages(_sum_of(_able(demand, kinds)))
        details.update(shortage_details("", missing))
        lacking = Message.joined(map(str, missing), "; ")
        message = Message(
            "The {wanted} kernels together need more than the suitable agents have ({lacking}).",
            wanted=wanted,
            lacking=lacking,
        )
    return Reason("bigger-than-all-agents", message, details, never=True)


def _not_enough_open(demand: Demand, kinds: tuple[Kind, ...], open_ones: tuple[Kind, ...]) -> Reason:
    """Return why agents that could hold the session take none now."""
    closed = [kind for kind in kinds if kind not in open_ones]
    wanted = [each for each in demand.requests if not _holds(each, open_ones)] or demand.requests
    request = next(each for each in wanted if _holds(each, closed))
    able = (agent for kind in closed if _holds(request, [kind]) for agent in kind.agents)
    shut = [AgentState(agent, order) for order, agent in enumerate(able)]
    # An agent that lacks the image would not help if it took sessions again.
    reason = ruled_out(FIXED_FILTERS, removed_by(FIXED_FILTERS, shut, request), request)
    number = _count(open_ones)
    rest: str = Message("The {number} agents that take sessions cannot hold it, even when empty.", number=number)
    if number < 2:
        rest = Message("The agent that takes sessions cannot hold it, even when empty.") if number else ""
    details = {**reason.details, "agents": _count(kinds), "open": number}
    return Reason(reason.code, Message.joined([reason.message, rest]), details)


def _hold_joined(demand: Demand, kinds: tuple[Kind, ...]) -> bool:
    """Return whether empty agents could hold the session: several that can join a network, or one alone."""
    joined = tuple([kind for kind in kinds if kind.empty.joins])
    if len(joined) == len(kinds) or (joined and _hold(demand, joined)):
        return True
    whole = Request(demand.total, len(demand.requests), "")
    return any(kind.empty.fits(whole) for kind in kinds)


def _not_enough_joined(kinds: tuple[Kind, ...]) -> Reason:
    joined = sum(kind.count for kind in kinds if kind.empty.joins)
    message = Message(
        "The agents that can join a network of kernels on several agents ({joined} of {agents}) cannot hold it, even "
        "when empty.",
        joined=joined,
        agents=_count(kinds),
    )
    return Reason(NO_JOIN, message, {"agents": _count(kinds), "joined": joined})


def _hold(demand: Demand, kinds: tuple[Kind, ...]) -> bool:
    """Return whether empty agents could hold the session. For several kernels, True means only that no obstacle was
    found."""
    return all(_holds(request, kinds) for request in demand.requests) and _hold_together(demand, kinds)


def _holds(request: Request, kinds: Iterable[Kind]) -> bool:
    """Return whether an empty agent of one of these kinds could hold the request."""
    return any(_suits(kind, request) and kind.empty.fits(request) for kind in kinds)


def _hold_together(demand: Demand, kinds: tuple[Kind, ...]) -> bool:
    if len(demand.requests) == 1:
        return True
    enough_places = _kernel_limit(demand, kinds) >= len(demand.requests)
    return enough_places and demand.total.fits(_sum_of(_able(demand, kinds)))


def _kernel_limit(demand: Demand, kinds: tuple[Kind, ...]) -> int:
    """Return an upper bound of the number of kernels on empty agents. The bound assumes that all kernels are as small
    as the smallest."""
    least, wanted = _least(demand), len(demand.requests)
    limit = 0
    for kind in _able(demand, kinds):
        each = [kind.empty.free[name] // amount for name, amount in least.items]
        most = wanted if kind.empty.max_kernels is None else kind.empty.max_kernels
        limit += min(wanted, most, *each) * kind.count
    return min(limit, wanted)


def _able(demand: Demand, kinds: tuple[Kind, ...]) -> list[Kind]:
    """Return the kinds of agents that could hold at least one request when empty."""
    return [kind for kind in kinds if any(_holds(each, [kind]) for each in demand.requests)]


def _least(demand: Demand) -> Request:
    names = frozenset.intersection(*(request.names for request in demand.requests))
    least = {name: min(request.wanted[name] for request in demand.requests) for name in names}
    return Request(Slots(least), 1, "")


def _sum_of(kinds: Iterable[Kind]) -> Slots:
    return sum((kind.capacity * kind.count for kind in kinds), Slots())


def _suits(kind: Kind, request: Request) -> bool:
    return request.architecture in ("", kind.empty.architecture)


def _count(kinds: tuple[Kind, ...]) -> int:
    return sum(kind.count for kind in kinds)
