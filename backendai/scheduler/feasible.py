"""What keeps a session or an agent out: gates look at the session alone, filters at one agent for one request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from backendai.core.slots import Shortage, Slots, decimal_text
from backendai.scheduler.demand import Request, architectures_of
from backendai.scheduler.plan import Reason
from backendai.scheduler.snapshot import SessionView


class Offer(Protocol):
    """An agent as the filters read it: an ``AgentView``, or a room of the running pass."""

    @property
    def name(self) -> str: ...
    @property
    def architecture(self) -> str: ...
    @property
    def free(self) -> Mapping[str, int]: ...
    @property
    def alive(self) -> bool: ...
    @property
    def schedulable(self) -> bool: ...
    @property
    def kernels(self) -> int: ...
    @property
    def max_kernels(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Filter:
    """One question to an agent: its name in the trace, the answer, and the reason when the answer is no."""

    step: str
    passes: Callable[[Offer, Request], bool]
    refusal: Callable[[Offer, Request], Reason]


@dataclass(frozen=True, slots=True)
class Gate:
    """One question to a session, asked before any agent: a reason to wait, or None."""

    step: str
    closed: Callable[[SessionView, datetime], Reason | None]
    passed: str


def why_not(agent: Offer, wanted: Slots, kernels: int, architecture: str) -> Reason | None:
    """Return what keeps the agent from taking this many kernels with these amounts in sum, or None when it can."""
    request = Request(wanted, kernels, architecture)
    obstacle = first_obstacle(agent, request)
    return obstacle.refusal(agent, request) if obstacle else None


def first_obstacle(agent: Offer, request: Request, filters: Sequence[Filter] | None = None) -> Filter | None:
    """Return the first of the filters (None: all) that the agent does not pass, or None."""
    for candidate in FILTERS if filters is None else filters:
        if not candidate.passes(agent, request):
            return candidate
    return None


def closed_gate(session: SessionView, now: datetime) -> tuple[int, Reason] | None:
    """Return the index in ``GATES`` of the first gate that is closed for the session and why, or None."""
    for index, gate in enumerate(GATES):
        reason = gate.closed(session, now)
        if reason is not None:
            return index, reason
    return None


def shortages(agent: Offer, request: Request) -> list[Shortage]:
    """Return every slot of the request that the agent cannot give now."""
    return [
        Shortage(name, amount, agent.free.get(name, 0))
        for name, amount in request.items
        if agent.free.get(name, 0) < amount
    ]


def distance(agent: Offer, request: Request) -> int:
    """Return how far the agent is from fitting: per slot the missing thousandths of what is asked, summed."""
    total = 0
    for name, amount in request.items:
        missing = amount - agent.free.get(name, 0)
        if missing > 0:
            total += missing * 1000 // amount
    return total


def describe_request(request: Request) -> str:
    """Return what is asked for people: ``cpu 2, mem 4 GiB``, or that it is nothing."""
    return request.wanted.describe() or "no resources"


def shortage_details(agent: str, missing: list[Shortage]) -> dict[str, object]:
    """Return the shortages as JSON values: amounts are decimal strings in the slot's unit."""
    rows = [{"slot": s.name, "wanted": decimal_text(s.wanted), "free": decimal_text(s.free)} for s in missing]
    return {"agent": agent, "shortages": rows}


def _is_alive(agent: Offer, request: Request) -> bool:
    return agent.alive


def _not_alive(agent: Offer, request: Request) -> Reason:
    return Reason("no-agent-alive", f"Agent {agent.name} does not answer.", {"agent": agent.name})


def _is_schedulable(agent: Offer, request: Request) -> bool:
    return agent.schedulable


def _not_schedulable(agent: Offer, request: Request) -> Reason:
    message = f"Agent {agent.name} takes no new sessions: an administrator paused it."
    return Reason("no-agent-schedulable", message, {"agent": agent.name})


def _has_architecture(agent: Offer, request: Request) -> bool:
    return request.architecture in ("", agent.architecture)


def _other_architecture(agent: Offer, request: Request) -> Reason:
    offered = agent.architecture or "of unknown architecture"
    message = f"Agent {agent.name} is {offered}; the image needs {request.architecture}."
    details: dict[str, object] = {"agent": agent.name, "wanted": request.architecture, "offered": agent.architecture}
    return Reason("no-agent-with-architecture", message, details)


def _has_kernels_left(agent: Offer, request: Request) -> bool:
    return agent.max_kernels is None or agent.kernels + request.kernels <= agent.max_kernels


def _too_many_kernels(agent: Offer, request: Request) -> Reason:
    kernels = "1 kernel" if agent.kernels == 1 else f"{agent.kernels} kernels"
    message = f"Agent {agent.name} runs {kernels} of at most {agent.max_kernels}; {request.kernels} more asked."
    details = {"agent": agent.name, "wanted": request.kernels, "kernels": agent.kernels, "limit": agent.max_kernels}
    return Reason("too-many-kernels", message, details)


def _has_slots(agent: Offer, request: Request) -> bool:
    return all(agent.free.get(name, 0) >= amount for name, amount in request.items)


def _insufficient(agent: Offer, request: Request) -> Reason:
    missing = shortages(agent, request)
    message = f"Agent {agent.name} lacks {'; '.join(str(shortage) for shortage in missing)}."
    return Reason("insufficient-resources", message, shortage_details(agent.name, missing))


SLOTS_FILTER = Filter("slots", _has_slots, _insufficient)
KERNELS_FILTER = Filter("max-kernels", _has_kernels_left, _too_many_kernels)
FIXED_FILTERS = (
    Filter("alive", _is_alive, _not_alive),
    Filter("schedulable", _is_schedulable, _not_schedulable),
    Filter("architecture", _has_architecture, _other_architecture),
)
FILTERS = (*FIXED_FILTERS, KERNELS_FILTER, SLOTS_FILTER)


def _malformed(session: SessionView, now: datetime) -> Reason | None:
    if len(session.kernels) == 1:
        return None
    if not session.kernels:
        return Reason("no-kernels", "The session has 0 kernels, so there is nothing to start.", never=True)
    architectures = architectures_of(session.kernels)
    if session.multi_node or len(architectures) <= 1:
        return None
    message = (
        f"The {len(session.kernels)} kernels must share one agent but need {len(architectures)} architectures "
        f"({', '.join(architectures)}): use images of one architecture, or spread the kernels over several agents."
    )
    return Reason("mixed-architectures", message, {"architectures": architectures}, never=True)


def _too_early(session: SessionView, now: datetime) -> Reason | None:
    starts_at = session.starts_at
    if starts_at is None or starts_at <= now:
        return None
    when = f"{starts_at:%Y-%m-%d %H:%M:%S %Z}".strip()
    details: dict[str, object] = {"starts_at": starts_at.isoformat()}
    return Reason("start-time-not-reached", f"Asked to start at {when}.", details, until=starts_at)


def _image_not_ready(session: SessionView, now: datetime) -> Reason | None:
    build = session.image_build
    if build is None:
        return None
    image = f"Image {session.image}" if session.image else "The image"
    details: dict[str, object] = {"image": session.image, "message": build.message}
    if build.failed:
        parts = [f"{image} could not be built", *[part.strip().rstrip(".") for part in (build.message,) if part]]
        message = f"{': '.join(parts)}. {build.fix}".strip()
        return Reason("image-build-failed", message, {**details, "fix": build.fix}, never=True)
    percent = None if build.progress is None else int(min(max(build.progress, 0.0), 1.0) * 100)
    done = "progress not known" if percent is None else f"{percent} % done"
    message = f"{image} is being built: {done}{f' ({build.message})' if build.message else ''}."
    return Reason("image-building", message, {**details, "percent": percent})


GATES = (
    Gate("kernels", _malformed, "The kernels can be placed together."),
    Gate("start-time", _too_early, "No start time lies ahead."),
    Gate("image", _image_not_ready, "The image is not being built."),
)
