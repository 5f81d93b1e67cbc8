"""Messages about folders that only some agents can mount."""

from __future__ import annotations

from collections.abc import Sequence

from backendai.base.core.messages import Message
from backendai.scheduler.capacity.agent_state import AgentState
from backendai.scheduler.plan import Reason
from backendai.scheduler.snapshot import StorageNeed

_MOST_NAMES = 3
VIEW, PART, HOME = ":view", ":part", ":home"


def hosts_of(need: StorageNeed) -> list[str]:
    """Return the storage hosts of the folders, sorted."""
    return sorted({host for _, host in need.folders})


def where_folders_lie(need: StorageNeed, agents: Sequence[AgentState]) -> str:
    """Return one sentence about the hosts of the folders, and how many agents mount these hosts."""
    return Message("{need}, which {agents}.", need=_folders(need), agents=_which(need, agents))


def cannot_mount(need: StorageNeed, agents: Sequence[AgentState]) -> Reason:
    """Return why no session with these folders can start: agents that mount them are excluded or report a fault, or no
    agent has all features."""
    hosts = hosts_of(need)
    details: dict[str, object] = {"storage_hosts": hosts, "folders": [name for name, _ in need.folders]}
    if any(need.features <= agent.storage for agent in agents):
        message = Message(
            "{need}, which {agents}. No session that asks for this can start there now.",
            need=_folders(need),
            agents=_which(need, agents),
        )
        return Reason("storage-not-on-agent", message, details)
    for agent in agents:
        for host in hosts:
            if fault := agent.storage_faults.get(host):
                message = Message(
                    "{need}. Agent {agent} cannot mount {host}: {fault}",
                    need=_folders(need),
                    agent=agent.name,
                    host=host,
                    fault=fault,
                )
                return Reason("storage-fault", message, {**details, "agent": agent.name})
    for agent in agents:
        if set(hosts) <= agent.storage:
            lacking = Message.joined(_lacking(need, agent), ", ")
            message = Message(
                "{need}, of which agent {agent} cannot mount {lacking}.",
                need=_folders(need),
                agent=agent.name,
                lacking=lacking,
            )
            return Reason("storage-feature-missing", message, {**details, "agent": agent.name})
    which = (
        Message("agent {agent} does not mount", agent=agents[0].name)
        if len(agents) == 1
        else Message("none of {number} agents mounts", number=len(agents))
    )
    return Reason("storage-not-on-agent", Message("{need}, which {which}.", need=_folders(need), which=which), details)


def _which(need: StorageNeed, agents: Sequence[AgentState]) -> str:
    mounting = [agent.name for agent in agents if need.features <= agent.storage]
    return (
        Message("only {mounting} mounts", mounting=mounting[0])
        if len(mounting) == 1
        else Message("{number} of {all} agents mount", number=len(mounting), all=len(agents))
    )


def _lacking(need: StorageNeed, agent: AgentState) -> list[str]:
    missing = need.features - agent.storage
    words = (
        (Message("read-only"), VIEW),
        (Message("a part of a folder"), PART),
        (Message("the home of a stopped session"), HOME),
    )
    return [word for word, suffix in words if any(feature.endswith(suffix) for feature in missing)]


def _folders(need: StorageNeed) -> str:
    """Return ``Folder data is on gpu3-disk``, or the same for several folders."""
    names = sorted({name for name, _ in need.folders})
    hosts = hosts_of(need)
    where = hosts[0] if len(hosts) == 1 else Message("{hosts} and {last_host}", hosts=hosts[:-1], last_host=hosts[-1])
    if len(names) == 1:
        return Message("Folder {name} is on {where}", name=names[0], where=where)
    shown: object = names if len(names) <= _MOST_NAMES else Message("{names} and others", names=names[:_MOST_NAMES])
    return Message("Folders {shown} are on {where}", shown=shown, where=where)
