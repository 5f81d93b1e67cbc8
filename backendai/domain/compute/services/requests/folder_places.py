"""Finds a resource group in which one session can mount a user's folders. One agent has to mount all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from backendai.domain.accounts.models import User
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.services.requests.mounts import MOST_MOUNTS
from backendai.domain.storage.models import Folder, HostOnAgent
from backendai.domain.storage.status import Rights


@dataclass(frozen=True, slots=True)
class Place:
    """A resource group, and the folders that a session there opens: the user's own folders first, then by name."""

    group: ResourceGroup
    folders: Sequence[Any]


def place_for(owner: User, groups: Sequence[ResourceGroup]) -> Place:
    """Return the group whose best agent mounts most of the owner's folders, and the mounted folders. Of equal groups,
    the first one.

    If no agent mounts any folder, the first group and all folders are returned, and the scheduler gives the wait
    reason. At most ``MOST_MOUNTS`` folders. ``groups`` must not be empty. Two queries.
    """
    folders = folders_of(owner)
    best = Place(groups[0], ())
    offers = _offers(groups)
    for group in groups:
        for offered in offers[group.pk]:
            there = [folder for folder in folders if offered.get(folder.host_id, 0) >= _needs(folder)]
            if len(there) > len(best.folders):
                best = Place(group, there)
    return Place(best.group, (best.folders or folders)[:MOST_MOUNTS])


def folders_of(owner: User) -> list[Any]:
    """Return the folders to show to file clients, each with the user's ``rights``: own folders first, then by name.
    Folders whose names begin with a dot are left out."""
    rows = Folder.objects.offered_to(owner).exclude(name__startswith=".").order_by("name", "pk")
    return sorted(rows, key=lambda one: one.user_id != owner.pk)


_ANY, _READ_ONLY = 1, 2  # what an agent can do with the folders of a host


def _needs(folder: Any) -> int:
    return _READ_ONLY if folder.rights == Rights.VIEW else _ANY


def _offers(groups: Sequence[ResourceGroup]) -> Mapping[int, list[Mapping[UUID, int]]]:
    """Return the reachable agents of each group, sorted by name. Each agent is a map from a storage host to ``_ANY``,
    or to ``_READ_ONLY`` if it can also mount read-only."""
    rows = HostOnAgent.objects.filter(
        agent__resource_group__in=groups, agent__status=Agent.Status.ALIVE, agent__schedulable=True
    ).order_by("agent__name")
    found: dict[int, dict[UUID, dict[UUID, int]]] = defaultdict(dict)
    columns = rows.values_list("agent__resource_group_id", "agent_id", "host_id", "fault", "can_read_only")
    for group_id, agent_id, host_id, fault, can_read_only in columns:
        if not fault:
            found[group_id].setdefault(agent_id, {})[host_id] = _READ_ONLY if can_read_only else _ANY
    return defaultdict(list, {group_id: list(agents.values()) for group_id, agents in found.items()})
