"""Computes the free amounts of resource groups over their reachable agents that take sessions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, QuerySet, Sum, TextField
from django.db.models.functions import Cast

from backendai.base.core.slots import Slots
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.models import Allocation, ComputeSession
from backendai.domain.compute.services.status.ledger import occupied_by_agent, slots_of


@dataclass(frozen=True, slots=True)
class GroupRoom:
    """The amounts of a resource group, and the numbers of its reachable agents and of its pending sessions. Only agents
    that take sessions count. ``free``: the sum over agents; an agent with more allocated than its capacity counts as
    full."""

    group: ResourceGroup
    agents: int
    waiting: int
    capacity: Slots
    occupied: Slots
    free: Slots


@dataclass(frozen=True, slots=True)
class GroupUse:
    """Capacity and allocations of a resource group, and the numbers of its reachable agents and of its pending
    sessions. Only agents that take sessions count."""

    group: ResourceGroup
    agents: int
    waiting: int
    capacity: Slots
    occupied: Slots


def use_of(groups: Sequence[ResourceGroup]) -> list[GroupUse]:
    """Return the use of each group. Three aggregate queries, far cheaper than ``room_in``."""
    ids = [group.pk for group in groups]
    agents: dict[int, int] = defaultdict(int)
    capacity: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for group_id, text, number in _alike(*ids):
        agents[group_id] += number
        for slot, amount in slots_of(text).items():
            capacity[group_id][slot] += amount * number
    occupied: dict[int, dict[str, int]] = defaultdict(dict)
    for group_id, slot, total in _taken(*ids):
        occupied[group_id][slot] = total
    waiting = dict(list(_waiting(*ids)))
    return [
        GroupUse(group, agents[pk], waiting.get(pk, 0), Slots(capacity[pk]), Slots(occupied[pk]))
        for group in groups
        for pk in (group.pk,)
    ]


def room_in(groups: Sequence[ResourceGroup]) -> list[GroupRoom]:
    """Return the free amounts of each group. Three queries."""
    # Only these columns are read, as whole rows take much longer; equal texts are parsed once.
    ids = [group.pk for group in groups]
    agents = list(_serving(ids).values_list("pk", "resource_group_id", Cast("capacity", TextField())))
    taken = occupied_by_agent([pk for pk, *_ in agents])
    waiting = dict(list(_waiting(*ids)))
    members: dict[int, list[tuple[Slots, Slots]]] = defaultdict(list)
    for pk, group_id, capacity in agents:
        members[group_id].append((slots_of(capacity), taken.get(pk, _NOTHING)))
    return [_room(group, members[group.pk], waiting.get(group.pk, 0)) for group in groups]


def waiting_in(group: ResourceGroup) -> int:
    """Return how many sessions of the group are pending; one query."""
    return dict(list(_waiting(group.pk))).get(group.pk, 0)


def _serving(group_ids: Sequence[int]) -> QuerySet[Agent]:
    return Agent.objects.filter(**_serves(group_ids)).order_by()


def _serves(group_ids: Sequence[int], prefix: str = "") -> dict[str, object]:
    wanted = {
        "resource_group__in": group_ids,
        "status": Agent.Status.ALIVE,
        "schedulable": True,
        "fault": "",
        "unknown_running": 0,
    }
    return {f"{prefix}{name}": value for name, value in wanted.items()}


def _alike(*group_ids: int) -> QuerySet[Any, Any]:
    return _serving(group_ids).values_list("resource_group_id", Cast("capacity", TextField())).annotate(Count("pk"))


def _taken(*group_ids: int) -> QuerySet[Any, Any]:
    taken = Allocation.objects.filter(**_serves(group_ids, "agent__")).order_by()
    return taken.values_list("agent__resource_group_id", "slot").annotate(Sum("amount"))


def _waiting(*group_ids: int) -> QuerySet[Any, Any]:
    pending = ComputeSession.objects.pending().filter(resource_group__in=group_ids).order_by()
    return pending.values_list("resource_group").annotate(Count("pk"))


def _room(group: ResourceGroup, agents: Sequence[tuple[Slots, Slots]], waiting: int) -> GroupRoom:
    capacity: dict[str, int] = defaultdict(int)
    occupied: dict[str, int] = defaultdict(int)
    free: dict[str, int] = defaultdict(int)
    for has, holds in agents:
        for name, amount in has.items():
            capacity[name] += amount
            free[name] += max(0, amount - holds[name])
        for name, amount in holds.items():
            occupied[name] += amount
    return GroupRoom(group, len(agents), waiting, Slots(capacity), Slots(occupied), Slots(free))


_NOTHING = Slots()
