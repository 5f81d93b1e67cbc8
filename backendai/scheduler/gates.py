"""Gates: checks that keep a session pending, independent of free amounts. Each gate is a function that returns a
reason.

A session that fails a gate does not hold back others. The first gates depend only on the request, so they run once for
all sessions with the same request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from backendai.base.core.messages import Message
from backendai.base.core.slots import decimal_text, slot_in_words
from backendai.scheduler.capacity.feasible import broken_devices
from backendai.scheduler.demand import architectures_of
from backendai.scheduler.limits import Amounts, Limits
from backendai.scheduler.plan import Reason
from backendai.scheduler.snapshot import AgentView, Dependency, DependencyState, SessionView, Snapshot


@dataclass(frozen=True, slots=True)
class GateContext:
    """Input of the gates besides the session: the group's rules, a summary of its agents, and the limits of holders."""

    now: datetime
    group: str
    session_types: frozenset[str]
    limits: Limits
    has_limits: bool
    agents: int
    offered: frozenset[str]
    architectures: frozenset[str]
    unhealthy: tuple[AgentView, ...]


@dataclass(frozen=True, slots=True)
class Gate:
    """A check of one session and its total request. ``closed`` returns the reason to wait; None if the session passes.
    ``passed``: the text for the trace of a session that passes."""

    step: str
    closed: Callable[[SessionView, Amounts, GateContext], Reason | None]
    passed: str


def context_of(snapshot: Snapshot, limits: Limits) -> GateContext:
    """Return the gates' input from this snapshot."""
    return GateContext(
        now=snapshot.now,
        group=snapshot.group,
        session_types=snapshot.rules.session_types,
        limits=limits,
        has_limits=bool(snapshot.limits) or snapshot.networks is not None,
        agents=len(snapshot.agents),
        offered=_offered(snapshot.agents),
        architectures=frozenset(agent.architecture for agent in snapshot.agents),
        unhealthy=tuple(agent for agent in snapshot.agents if agent.unhealthy),
    )


def closed_for_all(session: SessionView, asked: Amounts, context: GateContext) -> tuple[int, Reason] | None:
    """Return the first gate that rejects every session with this request: its index in ``GATES``, and the reason. None
    if no gate does."""
    return _first_closed(_OF_SHAPE, session, asked, context)


def closed_for_one(session: SessionView, asked: Amounts, context: GateContext) -> tuple[int, Reason] | None:
    """Return the first per-session gate that rejects the session: its index in ``GATES``, and the reason. None if no
    gate does."""
    return _first_closed(_OF_SESSION, session, asked, context)


def free_of_gates(sessions: Sequence[SessionView], context: GateContext) -> list[bool]:
    """Return for each session whether it certainly passes all per-session gates during the whole pass."""
    if context.has_limits:
        return [False] * len(sessions)
    types = context.session_types
    return [
        session.starts_at is None
        and session.image_build is None
        and not session.dependencies
        and session.session_type in types
        for session in sessions
    ]


def _first_closed(
    gates: Iterable[tuple[int, Gate]], session: SessionView, asked: Amounts, context: GateContext
) -> tuple[int, Reason] | None:
    for index, gate in gates:
        reason = gate.closed(session, asked, context)
        if reason is not None:
            return index, reason
    return None


def _offered(agents: Iterable[AgentView]) -> frozenset[str]:
    return frozenset([name for agent in agents for name, _ in agent.capacity.items()])


def _malformed(session: SessionView, asked: Amounts, context: GateContext) -> Reason | None:
    if len(session.kernels) == 1:
        return None
    if not session.kernels:
        message = Message("The session has 0 kernels, so there is nothing to start.")
        return Reason("no-kernels", message, {"kernels": 0}, never=True)
    if session.multi_node:
        return None
    architectures = architectures_of(session.kernels)
    if len(architectures) <= 1:
        return None
    message = Message(
        "The {number} kernels must share one agent but need {different} architectures "
        "({architectures}): use images of one architecture, or spread the kernels over "
        "several agents.",
        number=len(session.kernels),
        different=len(architectures),
        architectures=architectures,
    )
    return Reason("mixed-architectures", message, {"architectures": architectures}, never=True)


def not_due(starts_at: datetime | None, now: datetime) -> Reason | None:
    """Return why a session with this start time waits; None once the start time has come."""
    if starts_at is None or starts_at <= now:
        return None
    when = f"{starts_at:%Y-%m-%d %H:%M:%S %Z}".strip()
    details: dict[str, object] = {"starts_at": starts_at.isoformat()}
    return Reason("start-time-not-reached", Message("Asked to start at {when}.", when=when), details, until=starts_at)


def unmet(dependencies: Sequence[Dependency]) -> Reason | None:
    """Return why a session with these dependencies waits, or None if all succeeded."""
    if not dependencies:
        return None
    ordered = sorted(dependencies, key=lambda each: (each.name, each.id))
    failed = [each for each in ordered if each.state is DependencyState.FAILED]
    open_ones = failed or [each for each in ordered if each.state is DependencyState.LIVE]
    if not open_ones:
        return None
    details: dict[str, object] = {
        "sessions": [str(each.id) for each in open_ones], "names": [each.name for each in open_ones],
        "open": len(open_ones), "dependencies": len(ordered),
    }  # fmt: skip
    if failed:
        return Reason("dependency-failed", _why_never(failed), details, never=True)
    return Reason("dependency-not-finished", _awaited(open_ones, len(ordered)), details)


def _why_never(failed: Sequence[Dependency]) -> Message:
    names, is_single = [each.name for each in failed], len(failed) == 1
    if failed[0].needed == "failure":
        if is_single:
            return Message("Session {names}, which had to end without success, succeeded.", names=names)
        return Message("Sessions that had to end without success succeeded: {names}.", names=names)
    if is_single:
        return Message("Session {names}, which had to succeed, did not.", names=names)
    return Message("Sessions that had to succeed did not: {names}.", names=names)


def _awaited(live: Sequence[Dependency], number: int) -> Message:
    values: dict[str, Any] = {"names": [each.name for each in live], "number": len(live), "all": number}
    match live[0].needed, len(live) == 1:
        case "failure", True:
            return Message("Waits for session {names} to end without success.", **values)
        case "failure", False:
            return Message("Waits for {number} of {all} sessions to end without success: {names}.", **values)
        case "any", True:
            return Message("Waits for session {names} to end.", **values)
        case "any", False:
            return Message("Waits for {number} of {all} sessions to end: {names}.", **values)
        case _, True:
            return Message("Waits for session {names} to succeed.", **values)
    return Message("Waits for {number} of {all} sessions to succeed: {names}.", **values)


def _too_early(session: SessionView, asked: Amounts, context: GateContext) -> Reason | None:
    return not_due(session.starts_at, context.now)


def _depends(session: SessionView, asked: Amounts, context: GateContext) -> Reason | None:
    return unmet(session.dependencies)


def _wrong_type(session: SessionView, asked: Amounts, context: GateContext) -> Reason | None:
    if session.session_type in context.session_types:
        return None
    allowed = sorted(context.session_types)
    message = Message(
        "Resource group {group} takes no sessions of type {session_type} ({number} allowed: {allowed}).",
        group=context.group,
        session_type=session.session_type,
        number=len(allowed),
        allowed=allowed or Message("none"),
    )
    details: dict[str, object] = {"type": session.session_type, "allowed": allowed}
    return Reason("session-type-not-allowed", message, details, never=True)


def _image_not_ready(session: SessionView, asked: Amounts, context: GateContext) -> Reason | None:
    build = session.image_build
    if build is None:
        return None
    image = Message("Image {image}", image=session.image) if session.image else Message("The image")
    details: dict[str, object] = {"image": session.image, "message": build.message}
    if build.failed:
        message = Message("{image} could not be built.", image=image)
        if build.message:
            stop = "" if build.message.endswith(".") else "."
            message = Message("{image} could not be built: {text}{stop}", image=image, text=build.message, stop=stop)
        message = Message.joined([message, build.fix])
        return Reason("image-build-failed", message, {**details, "fix": build.fix})
    percent = None if build.progress is None else int(min(max(build.progress, 0.0), 1.0) * 100)
    done = Message("progress not known") if percent is None else Message("{percent} % done", percent=percent)
    if build.message:
        done = Message("{done} ({message})", done=done, message=build.message)
    message = Message("{image} is being built: {done}.", image=image, done=done)
    return Reason("image-building", message, {**details, "percent": percent})


def _too_many_sessions(session: SessionView, asked: Amounts, context: GateContext) -> Reason | None:
    return context.limits.sessions_reason(session.holder)


def _over_a_limit(session: SessionView, asked: Amounts, context: GateContext) -> Reason | None:
    return context.limits.slots_reason(session.holder, asked)


def _no_network(session: SessionView, asked: Amounts, context: GateContext) -> Reason | None:
    return context.limits.networks_reason() if needs_network(session) else None


def needs_network(session: SessionView) -> bool:
    """Return whether the session needs a network across agents."""
    return session.multi_node and len(session.kernels) > 1


def _not_offered(session: SessionView, asked: Amounts, context: GateContext) -> Reason | None:
    if not context.agents:
        return None
    missing = [(name, amount) for name, amount in asked if name not in context.offered]
    if not missing:
        return None
    (slot, amount), offered = missing[0], sorted(context.offered)
    message = Message(
        "No agent of resource group {group} offers {slot} (offered: {offered}).",
        group=context.group,
        slot=slot_in_words(slot),
        offered=[*map(slot_in_words, offered)] or Message("none"),
    )
    message = Message.joined([message, broken_devices(context.unhealthy, [slot])])
    details: dict[str, object] = {"slot": slot, "asked": decimal_text(amount), "offered": offered}
    return Reason("slot-not-offered", message, {**details, "agents": context.agents}, never=True)


def _no_such_architecture(session: SessionView, asked: Amounts, context: GateContext) -> Reason | None:
    if not context.agents:
        return None
    for kernel in session.kernels:
        if kernel.architecture and kernel.architecture not in context.architectures:
            return _architecture_reason(kernel.architecture, context)
    return None


def _architecture_reason(wanted: str, context: GateContext) -> Reason:
    offered, agents = sorted(context.architectures - {""}), context.agents
    message = Message(
        "The image needs architecture {wanted}; no agent has it (offered: {offered}).",
        wanted=wanted,
        offered=offered or Message("none"),
    )
    details: dict[str, object] = {"wanted": wanted, "offered": offered, "agents": agents}
    return Reason("no-agent-with-architecture", message, details, never=True)


_SHAPE_GATES = (
    Gate("kernels", _malformed, Message("The kernels can be placed together.")),
    Gate("offered", _not_offered, Message("All requested resource types are available in the group.")),
    Gate("image-architecture", _no_such_architecture, Message("There are agents of the image's architecture.")),
)
_SESSION_GATES = (
    Gate("start-time", _too_early, Message("No start time is set, or it has passed.")),
    Gate("dependencies", _depends, Message("It depends on no other session.")),
    Gate("session-type", _wrong_type, Message("The group accepts sessions of this type.")),
    Gate("image", _image_not_ready, Message("The image is not being built.")),
    Gate("concurrency", _too_many_sessions, Message("The limits allow another session.")),
    Gate("limits", _over_a_limit, Message("The limits allow the requested resources.")),
    Gate("network", _no_network, Message("A network over several agents is free, or none is needed.")),
)
GATES = (*_SHAPE_GATES, *_SESSION_GATES)
_OF_SHAPE = tuple(enumerate(_SHAPE_GATES))
_OF_SESSION = tuple(enumerate(_SESSION_GATES, len(_SHAPE_GATES)))
