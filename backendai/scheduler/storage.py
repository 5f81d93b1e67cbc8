"""Folders bind sessions to the agents that mount their storage hosts: in words."""

from __future__ import annotations

from collections.abc import Sequence

from backendai.scheduler.plan import Reason
from backendai.scheduler.room import Room
from backendai.scheduler.snapshot import StorageNeed

_MOST_NAMES = 3
VIEW, PART = ":view", ":part"


def hosts_of(need: StorageNeed) -> list[str]:
    """Return the storage hosts of the folders, sorted."""
    return sorted({host for _, host in need.folders})


def where_folders_lie(need: StorageNeed, agents: Sequence[Room]) -> str:
    """Return which folders lie where, and which of the agents mount that, as one sentence."""
    return f"{_folders(need)}, which {_which(need, agents)}."


def cannot_mount(need: StorageNeed, agents: Sequence[Room]) -> Reason:
    """Return why none of the agents comes into question for the folders: what one of them reports, or what they lack.
    Those that mount them were ruled out before for another reason."""
    hosts = hosts_of(need)
    details: dict[str, object] = {"storage_hosts": hosts, "folders": [name for name, _ in need.folders]}
    if any(need.features <= agent.storage for agent in agents):
        message = f"{_folders(need)}, which {_which(need, agents)}. No session that asks for this can start there now."
        return Reason("storage-not-on-agent", message, details)
    for agent in agents:
        for host in hosts:
            if fault := agent.storage_faults.get(host):
                message = f"{_folders(need)}. Agent {agent.name} cannot mount {host}: {fault}"
                return Reason("storage-fault", message, {**details, "agent": agent.name})
    for agent in agents:
        if set(hosts) <= agent.storage:
            lacking = " and ".join(_lacking(need, agent))
            message = f"{_folders(need)}, of which agent {agent.name} cannot mount {lacking}."
            return Reason("storage-feature-missing", message, {**details, "agent": agent.name})
    which = f"agent {agents[0].name} does not mount" if len(agents) == 1 else f"none of {len(agents)} agents mounts"
    return Reason("storage-not-on-agent", f"{_folders(need)}, which {which}.", details)


def _which(need: StorageNeed, agents: Sequence[Room]) -> str:
    mounting = [agent.name for agent in agents if need.features <= agent.storage]
    return f"only {mounting[0]} mounts" if len(mounting) == 1 else f"{len(mounting)} of {len(agents)} agents mount"


def _lacking(need: StorageNeed, agent: Room) -> list[str]:
    missing = need.features - agent.storage
    words = (("read-only", VIEW), ("a part of a folder", PART))
    return [word for word, suffix in words if any(feature.endswith(suffix) for feature in missing)]


def _folders(need: StorageNeed) -> str:
    """Return ``Folder data lies on gpu3-disk``, or the same of several."""
    names = sorted({name for name, _ in need.folders})
    hosts = hosts_of(need)
    where = hosts[0] if len(hosts) == 1 else f"{', '.join(hosts[:-1])} and {hosts[-1]}"
    if len(names) == 1:
        return f"Folder {names[0]} lies on {where}"
    shown = ", ".join(names[:_MOST_NAMES]) + (" and others" if len(names) > _MOST_NAMES else "")
    return f"Folders {shown} lie on {where}"
