"""Finds whether a folder is unreachable, through its file server or on the agents that mount it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from backendai.domain.cluster.models.groups import Agent
from backendai.domain.storage.models import StorageHost


@dataclass(frozen=True, slots=True)
class AccessFaults:
    """The faults of a folder's access.

    ``since``: when the fault of its file server was first seen. ``agents_since``: when the last agent that mounts the
    folder was lost.
    """

    fault: str = ""
    since: datetime | None = None
    agents_since: datetime | None = None


def away_of(host: StorageHost) -> AccessFaults:
    """Return the faults of access to the folders of a storage host; one query."""
    agents = list(
        host.on_agents.filter(agent__in=Agent.objects.registered()).values_list("agent__status", "agent__lost_at")
    )
    is_lost = all(status == Agent.Status.LOST for status, _ in agents)
    lost = [lost_at for _, lost_at in agents if lost_at is not None]
    return AccessFaults(host.fault, host.fault_since, max(lost) if is_lost and lost else None)
