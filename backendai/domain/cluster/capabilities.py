"""The capabilities of agents, and the sentence for a missing one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from backendai.base.core.messages import Message
from backendai.base.wire.capabilities import Capability
from backendai.domain.cluster.models import Agent

_CONTAINERS = frozenset(
    {
        Capability.IMAGES,
        Capability.LISTED_IMAGES,
        Capability.APPS,
        Capability.SERVING,
        Capability.COMMIT,
        Capability.PUSH,
        Capability.OWN_NETWORK,
        Capability.CLUSTER_NETWORK,
        Capability.SIZE_LIMITS,
        Capability.FOLDERS,
        Capability.DEVICES,
        Capability.READINGS,
        Capability.TERMINAL,
        Capability.EXECUTION,  # where it is not so, the gateway says it
    }
)
# Of agents of earlier versions, which do not report any: the one place that knows backends by name.
_OF_BACKEND: dict[str, frozenset[str]] = {
    "docker": _CONTAINERS,
    "process": frozenset(
        {
            Capability.NATIVE,
            Capability.CLUSTER_NETWORK,
            Capability.DEVICES,
            Capability.READINGS,
            Capability.TERMINAL,
            Capability.EXECUTION,
        }
    ),
    "simulated": frozenset(
        {
            Capability.SIMULATED,
            Capability.IMAGES,
            Capability.COMMIT,
            Capability.CLUSTER_NETWORK,
            Capability.EXECUTION,
        }
    ),
}
_OF_OTHERS = _CONTAINERS - {Capability.LISTED_IMAGES}


def reported(capabilities: Sequence[str] | None, backend: str) -> list[str]:
    """Return the capabilities that an agent reports, sorted; without a report those of its backend."""
    return sorted(_OF_BACKEND.get(backend, _OF_OTHERS) if capabilities is None else set(capabilities))


def capabilities_of(agent: Agent) -> frozenset[str]:
    """Return the capabilities of this agent."""
    return frozenset(reported(agent.capabilities, agent.backend))


@lru_cache(maxsize=1024)
def capabilities_in(text: str | None, backend: str) -> frozenset[str]:
    """Return the capabilities of an agent from the JSON text of its column."""
    found: Any = json.loads(text) if text else None
    return frozenset(reported(found, backend))


def lacking_cluster_files(agents: Iterable[frozenset[str]]) -> int:
    """Return on how many of these agents the kernels of a session get no host files and no SSH to each other.

    ``agents``: the capabilities of each. Simulated agents run no programs, which could miss them.
    """
    return sum(1 for has in agents if not has & {Capability.CLUSTER_FILES, Capability.SIMULATED})


def why_not(agent: Agent, capability: Capability) -> str:
    """Return why this agent lacks the capability, in a sentence; empty if it has it."""
    has = capabilities_of(agent)
    if capability in has:
        return ""
    if Capability.NATIVE in has and (text := _why_not_native(agent, capability)):
        return text
    if capability == Capability.APPS and Capability.SIMULATED in has:
        return Message("Agent {agent} is simulated: no program runs there.", agent=agent.name)
    if capability == Capability.COMMIT:
        return Message(
            "Agent {agent} cannot save sessions as images: the engine behind it does not let it. Keep files in "
            "folders, or launch the session on an agent of another backend.",
            agent=agent.name,
        )
    if capability == Capability.EXECUTION:
        return Message(
            "Agent {agent} cannot run code in its sessions: its backend cannot, or its version is old.",
            agent=agent.name,
        )
    if capability == Capability.CLUSTER_FILES:
        return Message(
            "Kernels on agent {agent} have no host files and no SSH to each other. They reach each other by name.",
            agent=agent.name,
        )
    return Message("Agent {agent} lacks the capability {capability}.", agent=agent.name, capability=str(capability))


def _why_not_native(agent: Agent, capability: Capability) -> str:
    if capability == Capability.APPS:
        return Message(
            "Sessions on agent {agent} are native processes and share its network: anybody on that machine could open "
            "the app.",
            agent=agent.name,
        )
    if capability == Capability.SERVING:
        return Message(
            "Sessions on agent {agent} are native processes and share its network: anybody on that machine could "
            "send requests to a model. Its administrator can allow that with BACKENDAI_AGENT_NATIVE_SERVING=yes.",
            agent=agent.name,
        )
    if capability == Capability.COMMIT:
        return Message(
            "Agent {agent} has no container engine: its sessions are processes and cannot be saved as images.",
            agent=agent.name,
        )
    return ""
