"""Filters: checks of whether one agent can hold one request, and the sentences about agents that cannot.

Checks that nothing but another request changes come first, then the agent's state, then its free amounts. So the first
check that an agent fails is the one to know: an agent of another architecture would not help if it came back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from backendai.base.core.messages import Message
from backendai.base.core.slots import Slots, kernels_in_words
from backendai.scheduler.capacity.agent_state import AgentState
from backendai.scheduler.capacity.feasible import fragment_details, fragments, shortage_details, shortages
from backendai.scheduler.capacity.storage import cannot_mount
from backendai.scheduler.demand import Request
from backendai.scheduler.plan import Reason
from backendai.scheduler.snapshot import AgentView

NO_JOIN = "agents-without-cluster-network"
_MOST_NAMES = 3
_MOST_CAUSES = 3  # a stored message has at most 500 characters


@dataclass(frozen=True, slots=True)
class Filter:
    """A check of one agent for one request. ``step``: the check's name in the trace. ``refusal``: the reason why these
    agents, one or more, fail it. ``asked``: whether the check applies to the request."""

    step: str
    passes: Callable[[AgentState, Request], bool]
    refusal: Callable[[Sequence[AgentState], Request], Reason]
    asked: Callable[[Request], bool] = lambda request: True


def why_not(agent: AgentView, wanted: Slots, kernels: int, architecture: str) -> Reason | None:
    """Return why the agent cannot hold ``kernels`` kernels that request ``wanted`` in total; None if it can."""
    state, request = AgentState(agent, 0), Request(wanted, kernels, architecture)
    obstacle = first_obstacle(state, request)
    return obstacle.refusal([state], request) if obstacle else None


def first_obstacle(state: AgentState, request: Request, filters: Sequence[Filter] | None = None) -> Filter | None:
    """Return the first filter that rejects the agent; None if the agent passes. Without ``filters`` all filters are
    tried."""
    for candidate in FILTERS if filters is None else filters:
        if candidate.asked(request) and not candidate.passes(state, request):
            return candidate
    return None


def removed_by(
    filters: Iterable[Filter], agents: Sequence[AgentState], request: Request
) -> dict[str, Sequence[AgentState]]:
    """Return the agents that each filter that applies removes, by its step."""
    removed: dict[str, Sequence[AgentState]] = {}
    for each in filters:
        if each.asked(request):
            out = [state for state in agents if not each.passes(state, request)]
            removed[each.step] = out
            if out:
                gone = set(map(id, out))
                agents = [state for state in agents if id(state) not in gone]
    return removed


def ruled_out(filters: Sequence[Filter], removed: Mapping[str, Sequence[AgentState]], request: Request) -> Reason:
    """Return the reason why these filters removed agents. It has the code of the last filter, and a sentence about the
    agents of each of the last ``_MOST_CAUSES``."""
    causes = [(each, agents) for each in reversed(filters) if (agents := removed.get(each.step))]
    reasons = [each.refusal(agents, request) for each, agents in causes[:_MOST_CAUSES]]
    message = Message.joined([reason.message for reason in reasons])
    return Reason(reasons[0].code, message, reasons[0].details, never=reasons[0].never)


def _about(code: str, agents: Sequence[AgentState], one: str, several: str, **details: object) -> Reason:
    """Return the reason with the sentence for this number of agents. Both are about the first agent's details."""
    details = {"agent": agents[0].name, "number": len(agents), **details}
    return Reason(code, one if len(agents) == 1 else several, details)


def _names(agents: Sequence[AgentState]) -> str | list[str]:
    names = [agent.name for agent in agents]
    return names if len(names) <= _MOST_NAMES else Message("{names} and others", names=names[:_MOST_NAMES])


def _is_designated(agent: AgentState, request: Request) -> bool:
    return agent.id in request.designated


def _not_designated(agents: Sequence[AgentState], request: Request) -> Reason:
    one = Message("Agent {agent} is not among the designated agents.", agent=agents[0].name)
    several = Message("Agents {names} are not among the designated agents.", names=_names(agents))
    return _about("not-designated", agents, one, several)


def _has_architecture(agent: AgentState, request: Request) -> bool:
    return request.architecture in ("", agent.architecture)


def _other_architecture(agents: Sequence[AgentState], request: Request) -> Reason:
    first, wanted = agents[0], request.architecture
    offered = first.architecture or Message("of unknown architecture")
    one = Message(
        "Agent {agent} is {offered}; the image needs {architecture}.",
        agent=first.name,
        offered=offered,
        architecture=wanted,
    )
    several = Message("Agents {names} are not {wanted}, which the image needs.", names=_names(agents), wanted=wanted)
    return _about("no-agent-with-architecture", agents, one, several, wanted=wanted, offered=first.architecture)


def _runs_containers(agent: AgentState, request: Request) -> bool:
    return not agent.is_native or request.node_images <= agent.images


def _no_containers(agents: Sequence[AgentState], request: Request) -> Reason:
    image = _image(agents, request)
    one = Message("Agent {agent} has no containers, which image {image} needs.", agent=agents[0].name, image=image)
    several = Message(
        "Agents {names} have no containers, which image {image} needs.", names=_names(agents), image=image
    )
    return _about("agents-without-containers", agents, one, several, image=image)


def _can_get_image(agent: AgentState, request: Request) -> bool:
    return not agent.low_disk or request.node_images <= agent.images


def _disk_low(agents: Sequence[AgentState], request: Request) -> Reason:
    image = _image(agents, request)
    one = Message(
        "Agent {agent} is short of disk space and pulls nothing; it lacks image {node_image}.",
        agent=agents[0].name,
        node_image=image,
    )
    several = Message(
        "Agents {names} are short of disk space and pull nothing; they lack image {image}.",
        names=_names(agents),
        image=image,
    )
    return _about("disk-low", agents, one, several, image=image)


def _has_image(agent: AgentState, request: Request) -> bool:
    return request.node_images <= agent.images


def _image_missing(agents: Sequence[AgentState], request: Request) -> Reason:
    image = _image(agents, request)
    one = Message(
        "Agent {agent} does not have image {node_image}, and it cannot be pulled.",
        agent=agents[0].name,
        node_image=image,
    )
    several = Message(
        "Agents {names} do not have image {image}, and it cannot be pulled.", names=_names(agents), image=image
    )
    return _about("image-not-on-agent", agents, one, several, image=image)


def _image(agents: Sequence[AgentState], request: Request) -> str:
    """Return the images that the first agent lacks."""
    return ", ".join(sorted(request.node_images - agents[0].images))


def _can_mount(agent: AgentState, request: Request) -> bool:
    return request.storage is None or request.storage.features <= agent.storage


def _mounts_nothing(agents: Sequence[AgentState], request: Request) -> Reason:
    assert request.storage is not None
    return cannot_mount(request.storage, agents)


def _cannot_join(agents: Sequence[AgentState], request: Request) -> Reason:
    one = Message("Agent {agent} cannot join a network of kernels on several agents.", agent=agents[0].name)
    several = Message("Agents {names} cannot join a network of kernels on several agents.", names=_names(agents))
    return _about(NO_JOIN, agents, one, several)


def _not_alive(agents: Sequence[AgentState], request: Request) -> Reason:
    one = Message("Agent {agent} is not reachable.", agent=agents[0].name)
    return _about("no-agent-alive", agents, one, Message("Agents {names} are not reachable.", names=_names(agents)))


def _is_resumed(agent: AgentState, request: Request) -> bool:
    return agent.schedulable or agent.draining or bool(agent.fault)


def _paused(agents: Sequence[AgentState], request: Request) -> Reason:
    one = Message("Agent {agent} takes no new sessions: an administrator paused it.", agent=agents[0].name)
    several = Message("Agents {names} take no new sessions: an administrator paused them.", names=_names(agents))
    return _about("no-agent-schedulable", agents, one, several)


def _is_sound(agent: AgentState, request: Request) -> bool:
    return agent.schedulable or agent.draining or not agent.fault


def _cannot_start(agents: Sequence[AgentState], request: Request) -> Reason:
    """Return that each of these agents reports a fault, with the fault of the first one."""
    first = agents[0]
    one = Message("Agent {first} cannot start sessions: {fault}", first=first.name, fault=first.fault)
    several = Message(
        "{number} agents cannot start sessions, such as {first}: {fault}",
        number=len(agents),
        first=first.name,
        fault=first.fault,
    )
    return _about("agent-fault", agents, one, several, faulty=[agent.name for agent in agents])


def _drained(agents: Sequence[AgentState], request: Request) -> Reason:
    """Return that an administrator drains these agents, with the deadline of a single one."""
    first, names = agents[0], _names(agents)
    one = Message("Agent {agent} is being drained and takes no new sessions.", agent=first.name)
    if first.drain_ends_at is not None:
        one = Message(
            "Agent {agent} is being drained and takes no new sessions; those on it end by {at}.",
            agent=first.name,
            at=f"{first.drain_ends_at:%Y-%m-%d %H:%M %Z}".strip(),
        )
    several = Message("Agents {names} are being drained and take no new sessions.", names=names)
    ends = [agent.drain_ends_at for agent in agents if agent.drain_ends_at is not None]
    return _about("agent-draining", agents, one, several, ends_at=min(ends).isoformat() if ends else None)


def _has_kernels_left(agent: AgentState, request: Request) -> bool:
    return agent.has_kernels_left(request.kernels)


def _too_many_kernels(agents: Sequence[AgentState], request: Request) -> Reason:
    agent = agents[0]
    message = Message(
        "Agent {agent} runs {kernels} of at most {max_kernels}; {asked} more requested.",
        agent=agent.name,
        kernels=kernels_in_words(agent.kernels),
        max_kernels=agent.max_kernels,
        asked=request.kernels,
    )
    details = {"agent": agent.name, "wanted": request.kernels, "kernels": agent.kernels, "limit": agent.max_kernels}
    return Reason("too-many-kernels", message, details)


def _has_slots(agent: AgentState, request: Request) -> bool:
    return all(agent.free.get(name, 0) >= amount for name, amount in request.items)


def _insufficient(agents: Sequence[AgentState], request: Request) -> Reason:
    missing = shortages(agents[0], request)
    message = Message(
        "Agent {agent} has too little: {missing}.",
        agent=agents[0].name,
        missing=Message.joined(map(str, missing), "; "),
    )
    return Reason("insufficient-resources", message, shortage_details(agents[0].name, missing))


def _has_devices(agent: AgentState, request: Request) -> bool:
    return agent.shares_for(request) is not None


def _fragmented(agents: Sequence[AgentState], request: Request) -> Reason:
    broken = fragments(agents[0], request)
    message = Message(
        "The devices of agent {agent} cannot be combined: {broken}.",
        agent=agents[0].name,
        broken=Message.joined(map(str, broken), "; "),
    )
    return Reason("fragmented", message, fragment_details(agents[0].name, broken))


DESIGNATED_FILTER = Filter("designated", _is_designated, _not_designated, lambda request: bool(request.designated))
STORAGE_FILTER = Filter("storage", _can_mount, _mounts_nothing, lambda request: request.storage is not None)
REQUEST_FILTERS = (
    DESIGNATED_FILTER,
    Filter("architecture", _has_architecture, _other_architecture),
    Filter("containers", _runs_containers, _no_containers, lambda request: bool(request.node_images)),
    Filter("disk", _can_get_image, _disk_low, lambda request: bool(request.node_images)),
    Filter("node-image", _has_image, _image_missing, lambda request: bool(request.node_images)),
    STORAGE_FILTER,
    Filter("cluster-network", lambda agent, request: agent.joins, _cannot_join, lambda request: request.joins),
)
STATE_FILTERS = (
    Filter("alive", lambda agent, request: agent.alive, _not_alive),
    Filter("schedulable", _is_resumed, _paused),
    Filter("fault", _is_sound, _cannot_start),
    Filter("draining", lambda agent, request: not agent.draining, _drained),
)
FIXED_FILTERS = (*REQUEST_FILTERS, *STATE_FILTERS)
KERNELS_FILTER = Filter("max-kernels", _has_kernels_left, _too_many_kernels)
SLOTS_FILTER = Filter("slots", _has_slots, _insufficient)
DEVICES_FILTER = Filter("devices", _has_devices, _fragmented, lambda request: bool(request.kinds))
FILTERS = (*FIXED_FILTERS, KERNELS_FILTER, SLOTS_FILTER, DEVICES_FILTER)
