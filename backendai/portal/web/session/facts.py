"""Derived facts of a session: its automatic ends, granted amounts and measured usage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Sum
from django.utils.dateparse import parse_datetime

from backendai.base.core.durations import describe_duration
from backendai.base.core.slots import MILLI, Slots, format_size
from backendai.base.texts.translation import gettext as _
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Allocation, ComputeSession, Kernel
from backendai.domain.compute.services.requests.roles import WAIT
from backendai.domain.compute.status import PLACED, TERMINAL, Status

SOON = timedelta(hours=1)
_SPEAKING = (Agent.Status.ALIVE, Agent.Status.DRAINING)


@dataclass(frozen=True, slots=True)
class End:
    """An automatic end of a session: its title, time and description. ``is_drain``: the page says it of the agent."""

    title: str
    at: datetime
    about: str
    is_drain: bool = False


@dataclass(frozen=True, slots=True)
class Use:
    """The use of one device by one kernel's programs, as its agent last measured it.

    ``percent``, ``mem_used`` and ``mem_total`` (bytes) are None if the driver does not report them.
    """

    hostname: str
    device: str
    percent: float | None
    mem_used: int | None
    mem_total: int | None
    at: datetime | None


@dataclass(frozen=True, slots=True)
class MemoryKill:
    """The newest end of a program at the memory limit of its kernel; ``number``: of all in the session."""

    at: datetime
    limit: str
    number: int


def memory_kill_of(kernels: Iterable[Kernel]) -> MemoryKill | None:
    """Return what the memory limit has ended since the kernels' starts; None if nothing."""
    found = [(one.memory_killed_at, one) for one in kernels if one.memory_killed_at and one.started_at]
    since = [(at, one) for at, one in found if one.started_at and at >= one.started_at]
    if not since:
        return None
    at, last = max(since, key=lambda pair: pair[0])
    limit = format_size(int(last.amounts["mem"] // MILLI))
    return MemoryKill(at, limit, sum(one.memory_kills for _, one in since))


def ends_of(session: ComputeSession, kernels: Iterable[Kernel]) -> list[End]:
    """Return the automatic ends of a live session, the earliest first."""
    if session.is_terminal or session.status == Status.TERMINATING:
        return []
    found = []
    if session.ends_at and session.started_at:
        if session.is_end_moved:
            found.append(End(_("Moved end"), session.ends_at, _("The end was moved to this time.")))
        elif session.batch_timeout and session.started_at + session.batch_timeout == session.ends_at:
            found.append(End(_("Batch timeout"), session.ends_at, _("The batch timeout is reached then.")))
        else:
            about = _("The maximum lifetime of a policy is reached then.")
            found.append(End(_("Maximum lifetime"), session.ends_at, about))
    for agent in {kernel.agent_id: kernel.agent for kernel in kernels if kernel.status not in TERMINAL}.values():
        if agent is not None and agent.is_drained and agent.drain_ends_at:
            about = _("An administrator is draining agent %(node)s.") % {"node": agent.name}
            found.append(End(_("Its agent is drained"), agent.drain_ends_at, about, is_drain=True))
    return sorted(found, key=lambda end: end.at)


def ends_soon(ends: Sequence[End], *, now: datetime) -> End | None:
    """Return the first end within an hour, or None."""
    return next((end for end in ends if end.at - now < SOON), None)


def waited(session: ComputeSession) -> str:
    """Return how long the session waited for its start, as text; empty before the start, below a second, and after a
    resume.

    A session with its own start time waits from that time on.
    """
    if session.started_at is None or session.resumes:
        return ""
    begin = max(session.created_at, session.starts_at or session.created_at)
    wait = session.started_at - begin
    return describe_duration(wait) if wait >= timedelta(seconds=1) else ""


def commands_of(session: ComputeSession, kernels: Iterable[Kernel]) -> list[tuple[str, str]]:
    """Return the roles whose kernels run another command than the session, each with its command. Those that only wait
    for programs of the main kernel are left out."""
    own = {kernel.role: kernel.startup_command for kernel in kernels}
    return [(role, command) for role, command in own.items() if command not in ("", WAIT, session.startup_command)]


def asked_for(kernels: Iterable[Kernel]) -> Slots:
    """Return the total amounts requested by those kernels that are placed on agents."""
    return sum((kernel.amounts for kernel in kernels if kernel.status in PLACED), Slots())


def granted_to(session: ComputeSession) -> Slots:
    """Return the total amounts that the session's kernels hold, by slot; one query."""
    rows = Allocation.objects.filter(kernel__session=session).order_by().values_list("slot")
    return Slots({slot: int(amount) for slot, amount in rows.annotate(Sum("amount"))})  # sums may come as decimals


def uses_of(kernels: Iterable[Kernel]) -> list[Use]:
    """Return the measured use of accelerators by running kernels, where the driver knows the processes."""
    return [
        _use(kernel, device, said, kernel.agent.live.get("at"))
        for kernel in kernels
        if kernel.status == Status.RUNNING and kernel.agent and kernel.agent.status in _SPEAKING
        for device, said in sorted((kernel.agent.live.get("devices") or {}).items())
        if str(kernel.pk) in (said.get("kernels") or {})
    ]


def _use(kernel: Kernel, device: str, said: dict[str, Any], at: str | None) -> Use:
    use = said["kernels"][str(kernel.pk)] or {}
    return Use(
        hostname=kernel.hostname,
        device=" ".join(filter(None, [said.get("model"), device])),
        percent=use.get("util_pct"),
        mem_used=use.get("mem_used"),
        mem_total=said.get("mem_total"),
        at=parse_datetime(at) if at else None,
    )
