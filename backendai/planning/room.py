"""How much room each resource group has, over the agents that answer and take sessions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count

from backendai.cluster.models import Agent, ResourceGroup
from backendai.compute.models import ComputeSession
from backendai.compute.services.ledger import occupied_by_agent
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
    agents = list(Agent.objects.filter(resource_group__in=groups, status=Agent.Status.ALIVE, schedulable=True))
    taken = occupied_by_agent([agent.pk for agent in agents])
    pending = ComputeSession.objects.pending().filter(resource_group__in=groups).order_by()
    waiting = dict(pending.values_list("resource_group").annotate(Count("pk")))
    members: dict[int, list[tuple[Slots, Slots]]] = defaultdict(list)
    for agent in agents:
        members[agent.resource_group_id].append((agent.slots, taken.get(agent.pk, Slots())))
    return [_room(group, members[group.pk], waiting.get(group.pk, 0)) for group in groups]


def _room(group: ResourceGroup, agents: Sequence[tuple[Slots, Slots]], waiting: int) -> GroupRoom:
    capacity = sum((has for has, _ in agents), Slots())
    occupied = sum((holds for _, holds in agents), Slots())
    free = sum((_positive(has - holds) for has, holds in agents), Slots())
    return GroupRoom(group, len(agents), waiting, capacity, occupied, free)


def _positive(amounts: Slots) -> Slots:
    return Slots({name: max(0, amount) for name, amount in amounts.items()})
