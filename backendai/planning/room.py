"""How much room each resource group has, over the agents that answer and take sessions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, TextField
from django.db.models.functions import Cast

from backendai.cluster.models import Agent, ResourceGroup
from backendai.compute.models import ComputeSession
from backendai.compute.services.ledger import occupied_by_agent, slots_of
from backendai.core.slots import Slots


@dataclass(frozen=True, slots=True)
class GroupRoom:
    """One resource group: how many agents answer, how many sessions wait, and what the agents have in all.

    ``free`` is the sum of what is left on each agent; an agent that shrank below what it holds counts as full.
    """

    group: ResourceGroup
    agents: int
    waiting: int
    capacity: Slots
    occupied: Slots
    free: Slots


def room_in(groups: Sequence[ResourceGroup]) -> list[GroupRoom]:
    """Return the room of each group, in three queries."""
    # Text is turned into amounts once for all machines that are alike; whole rows of agents have much more to unpack.
    serving = Agent.objects.filter(resource_group__in=groups, status=Agent.Status.ALIVE, schedulable=True)
    agents = list(serving.order_by().values_list("pk", "resource_group_id", Cast("capacity", TextField())))
    taken = occupied_by_agent([pk for pk, *_ in agents])
    pending = ComputeSession.objects.pending().filter(resource_group__in=groups).order_by()
    waiting = dict(pending.values_list("resource_group").annotate(Count("pk")))
    members: dict[int, list[tuple[Slots, Slots]]] = defaultdict(list)
    for pk, group_id, capacity in agents:
        members[group_id].append((slots_of(capacity), taken.get(pk, _NOTHING)))
    return [_room(group, members[group.pk], waiting.get(group.pk, 0)) for group in groups]


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
