"""Filters: checks of whether one agent can hold one request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from backendai.core.messages import Message
from backendai.core.slots import Shortage, Slots, amount_in_words, decimal_text, kernels_in_words
from backendai.scheduler.agent_state import AgentState
from backendai.scheduler.demand import Request
from backendai.scheduler.plan import Reason
from backendai.scheduler.snapshot import AgentView
from backendai.scheduler.storage import cannot_mount

NO_JOIN = "agents-without-cluster-network"


class Offer(Protocol):
    """Any object with an agent's free amounts by slot (thousandths)."""

    @property
    def free(self) -> Mapping[str, int]: ...


@dataclass(frozen=True, slots=True)
class Filter:
    """A check of one agent for one request. ``step``: the check's name in the trace. ``refusal``: the reason if it
    fails. ``asked``: whether the check applies to the request."""

    step: str
    passes: Callable[[AgentState, Request], bool]
    refusal: Callable[[AgentState, Request], Reason]
    asked: Callable[[Request], bool] = lambda request: True


@dataclass(frozen=True, slots=True)
class Fragment:
    """The free amounts of a slot that is too fragmented for a kernel: the sum over the agent's devices, and the largest
    on one device."""

    slot: str
    wanted: int
    largest: int
    free: int

    def __str__(self) -> str:
        wanted, free, largest = amount_in_words(self.slot, self.wanted), *map(decimal_text, (self.free, self.largest))
        return Message(
            "{wanted} requested, {free} free in total, at most {largest} on one device",
            wanted=wanted,
            free=free,
            largest=largest,
        )


def why_not(agent: AgentView, wanted: Slots, kernels: int, architecture: str) -> Reason | None:
    """Return why the agent cannot hold ``kernels`` kernels that request ``wanted`` in total; None if it can."""
    state, request = AgentState(agent, 0), Request(wanted, kernels, architecture)
    obstacle = first_obstacle(state, request)
    return obstacle.refusal(state, request) if obstacle else None


def first_obstacle(state: AgentState, request: Request, filters: Sequence[Filter] | None = None) -> Filter | None:
    """Return the first filter that rejects the agent; None if the agent passes. Without ``filters`` all filters are
    tried."""
    for candidate in FILTERS if filters is None else filters:
        if candidate.asked(request) and not candidate.passes(state, request):
            return candidate
    return None


def shortages(agent: Offer, request: Request) -> list[Shortage]:
    """Return the slots of which the agent has too little: the requested and the free amount of each."""
    return [
        Shortage(name, amount, agent.free.get(name, 0))
        for name, amount in request.items
        if agent.free.get(name, 0) < amount
    ]


def distance(agent: Offer, request: Request) -> int:
    """Return how far the agent is from fitting: the missing share of each requested amount in thousandths, summed over
    slots."""
    total = 0
    for name, amount in request.items:
        missing = amount - agent.free.get(name, 0)
        if missing > 0:
            total += missing * 1000 // amount
    return total


def describe_request(request: Request) -> str:
    """Return the requested amounts as text: ``2 CPU cores, 4 GiB of memory``, or ``no resources``."""
    return request.wanted.describe() or Message("no resources")


def shortage_details(agent: str, missing: list[Shortage]) -> dict[str, object]:
    """Return the shortages as JSON values: amounts are decimal strings in the slot's unit."""
    rows = [{"slot": s.name, "wanted": decimal_text(s.wanted), "free": decimal_text(s.free)} for s in missing]
    return {"agent": agent, "shortages": rows}


def fragments(state: AgentState, request: Request) -> list[Fragment]:
    """Return how the agent's free amount of each requested accelerator is distributed over its devices. Empty if its
    devices are unknown."""
    if state.book is None:
        return []
    return [
        Fragment(slot, max(amounts), *state.book.largest_and_sum(slot))
        for slot in sorted(request.kinds & set(state.book.slots))
        if (amounts := [amount for kernel in request.accelerators for name, amount in kernel if name == slot])
    ]


def fragment_details(agent: str, fragments: list[Fragment]) -> dict[str, object]:
    """Return the fragments as JSON values: amounts are decimal strings in the slot's unit."""
    rows = [
        {
            "slot": each.slot,
            "wanted": decimal_text(each.wanted),
            "free": decimal_text(each.free),
            "largest": decimal_text(each.largest),
        }
        for each in fragments
    ]
    return {"agent": agent, "fragments": rows}


def cannot_start(agents: Sequence[AgentState]) -> Reason:
    """Return the reason why these agents cannot start sessions: each reports a fault. The message quotes the fault of
    the first one."""
    first, number = agents[0], len(agents)
    message = Message("Agent {first} cannot start sessions: {fault}", first=first.name, fault=first.fault)
    if number > 1:
        message = Message(
            "{number} agents cannot start sessions, such as {first}: {fault}",
            number=number,
            first=first.name,
            fault=first.fault,
        )
    return Reason("agent-fault", message, {"agent": first.name, "faulty": [agent.name for agent in agents]})


def _is_designated(agent: AgentState, request: Request) -> bool:
    return agent.id in request.designated


def _not_designated(agent: AgentState, request: Request) -> Reason:
    message = Message("Agent {agent} is not among the designated agents.", agent=agent.name)
    return Reason("not-designated", message, {"agent": agent.name})


def _is_alive(agent: AgentState, request: Request) -> bool:
    return agent.alive


def _not_alive(agent: AgentState, request: Request) -> Reason:
    return Reason("no-agent-alive", Message("Agent {agent} is not reachable.", agent=agent.name), {"agent": agent.name})


def _is_schedulable(agent: AgentState, request: Request) -> bool:
    return agent.schedulable


def _not_schedulable(agent: AgentState, request: Request) -> Reason:
    if agent.fault:
        return cannot_start([agent])
    message = Message("Agent {agent} takes no new sessions: an administrator paused it.", agent=agent.name)
    return Reason("no-agent-schedulable", message, {"agent": agent.name})


def _has_architecture(agent: AgentState, request: Request) -> bool:
    return request.architecture in ("", agent.architecture)


def _other_architecture(agent: AgentState, request: Request) -> Reason:
    offered = agent.architecture or Message("of unknown architecture")
    message = Message(
        "Agent {agent} is {offered}; the image needs {architecture}.",
        agent=agent.name,
        offered=offered,
        architecture=request.architecture,
    )
    details: dict[str, object] = {"agent": agent.name, "wanted": request.architecture, "offered": agent.architecture}
    return Reason("no-agent-with-architecture", message, details)


def _has_image(agent: AgentState, request: Request) -> bool:
    return request.node_images <= agent.images


def _image_missing(agent: AgentState, request: Request) -> Reason:
    image = ", ".join(sorted(request.node_images - agent.images))
    details: dict[str, object] = {"agent": agent.name, "image": image}
    if agent.low_disk:
        message = Message(
            "Agent {agent} is short of disk space and pulls nothing; it lacks image {node_image}.",
            agent=agent.name,
            node_image=image,
        )
        return Reason("disk-low", message, details)
    message = Message(
        "Agent {agent} does not have image {node_image}, and it cannot be pulled.",
        agent=agent.name,
        node_image=image,
    )
    return Reason("image-not-on-agent", message, details)


def _can_mount(agent: AgentState, request: Request) -> bool:
    return request.storage is None or request.storage.features <= agent.storage


def _mounts_nothing(agent: AgentState, request: Request) -> Reason:
    assert request.storage is not None
    return cannot_mount(request.storage, [agent])


def _joins(agent: AgentState, request: Request) -> bool:
    return agent.joins


def _cannot_join(agent: AgentState, request: Request) -> Reason:
    message = Message("Agent {agent} cannot join a network of kernels on several agents.", agent=agent.name)
    return Reason(NO_JOIN, message, {"agent": agent.name})


def _has_kernels_left(agent: AgentState, request: Request) -> bool:
    return agent.has_kernels_left(request.kernels)


def _too_many_kernels(agent: AgentState, request: Request) -> Reason:
    kernels = kernels_in_words(agent.kernels)
    message = Message(
        "Agent {agent} runs {kernels} of at most {max_kernels}; {kernels_2} more requested.",
        agent=agent.name,
        kernels=kernels,
        max_kernels=agent.max_kernels,
        kernels_2=request.kernels,
    )
    details = {"agent": agent.name, "wanted": request.kernels, "kernels": agent.kernels, "limit": agent.max_kernels}
    return Reason("too-many-kernels", message, details)


def _has_slots(agent: AgentState, request: Request) -> bool:
    return all(agent.free.get(name, 0) >= amount for name, amount in request.items)


def _insufficient(agent: AgentState, request: Request) -> Reason:
    missing = shortages(agent, request)
    message = Message(
        "Agent {agent} has too little: {missing}.",
        agent=agent.name,
        missing=Message.joined(map(str, missing), "; "),
    )
    return Reason("insufficient-resources", message, shortage_details(agent.name, missing))


def _has_devices(agent: AgentState, request: Request) -> bool:
    return agent.shares_for(request) is not None


def _fragmented(agent: AgentState, request: Request) -> Reason:
    broken = fragments(agent, request)
    message = Message(
        "The devices of agent {agent} cannot be combined: {broken}.",
        agent=agent.name,
        broken=Message.joined(map(str, broken), "; "),
    )
    return Reason("fragmented", message, fragment_details(agent.name, broken))


DESIGNATED_FILTER = Filter("designated", _is_designated, _not_designated, lambda request: bool(request.designated))
ALIVE_FILTER = Filter("alive", _is_alive, _not_alive)
SCHEDULABLE_FILTER = Filter("schedulable", _is_schedulable, _not_schedulable)
ARCHITECTURE_FILTER = Filter("architecture", _has_architecture, _other_architecture)
IMAGE_FILTER = Filter("node-image", _has_image, _image_missing, lambda request: bool(request.node_images))
STORAGE_FILTER = Filter("storage", _can_mount, _mounts_nothing, lambda request: request.storage is not None)
NETWORK_FILTER = Filter("cluster-network", _joins, _cannot_join, lambda request: request.joins)
KERNELS_FILTER = Filter("max-kernels", _has_kernels_left, _too_many_kernels)
SLOTS_FILTER = Filter("slots", _has_slots, _insufficient)
DEVICES_FILTER = Filter("devices", _has_devices, _fragmented, lambda request: bool(request.kinds))
FIXED_FILTERS = (
    DESIGNATED_FILTER,
    ALIVE_FILTER,
    SCHEDULABLE_FILTER,
    ARCHITECTURE_FILTER,
    IMAGE_FILTER,
    STORAGE_FILTER,
    NETWORK_FILTER,
)
FILTERS = (*FIXED_FILTERS, KERNELS_FILTER, SLOTS_FILTER, DEVICES_FILTER)
