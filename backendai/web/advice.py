"""What somebody can do about a session that does not go on by itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from backendai.cluster.models import Agent
from backendai.compute.models import ComputeSession, Kernel
from backendai.compute.status import STARTING, TERMINAL, Status

_CHANGES = {
    "bigger-than-any-agent": "Ask for less, or let an administrator add a bigger agent.",
    "bigger-than-all-agents": "Ask for fewer or smaller kernels, or let an administrator add agents.",
    "too-many-kernels": "Ask for fewer kernels, or let an administrator raise the agent's limit.",
    "no-agent-with-architecture": "Choose an image of an architecture that the agents have.",
    "mixed-architectures": "Choose images of one architecture.",
    "image-build-failed": "An administrator mends it and runs bin/build-images; the session then starts by itself.",
}
_ANYTHING = "Start one with other resources, another image or another resource group."


@dataclass(frozen=True, slots=True)
class SilentAgent:
    """An agent of the session that does not answer: since when, and when its sessions are ended."""

    name: str
    since: datetime
    until: datetime


def what_to_change(session: ComputeSession) -> str:
    """Return what would let a session start that cannot as things stand; empty when waiting is enough."""
    if session.status != Status.PENDING or not session.status_data.get("never"):
        return ""
    return _CHANGES.get(session.status_reason, _ANYTHING)


def try_text(session: ComputeSession) -> str:
    """Return which try of a start this is once one has failed: ``try 2 of 4``; else nothing."""
    if not session.retries or session.status not in STARTING | {Status.PENDING}:
        return ""
    return f"try {session.retries + 1} of {session.resource_group.max_retries + 1}"


def silent_agents(session: ComputeSession, kernels: Iterable[Kernel]) -> list[SilentAgent]:
    """Return the agents that hold live kernels of the session and do not answer."""
    agents = {kernel.agent_id: kernel.agent for kernel in kernels if kernel.agent and kernel.status not in TERMINAL}
    grace = session.resource_group.agent_lost_grace
    return [
        SilentAgent(agent.name, agent.last_seen_at or agent.lost_at, agent.lost_at + grace)
        for agent in agents.values()
        if agent.status == Agent.Status.LOST and agent.lost_at
    ]
