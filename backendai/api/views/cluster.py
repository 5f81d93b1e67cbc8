"""What one may pick, and what it runs on."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from django.db.models import Count, QuerySet
from rest_framework.generics import ListAPIView, RetrieveAPIView

from backendai.api.authentication import asker
from backendai.api.other_bodies import AgentBody, ImageBody, PresetBody, ResourceGroupBody
from backendai.api.paging import ByName, ByRank
from backendai.catalog.models import Image, ResourcePreset
from backendai.cluster.models import Agent, ResourceGroup
from backendai.compute.models import ComputeSession
from backendai.compute.services.ledger import occupied_by_agent
from backendai.core.slots import Slots, decimal_text


class ImageList(ListAPIView[Image]):
    """Images that sessions start from."""

    queryset = Image.objects.none()
    serializer_class = ImageBody
    pagination_class = ByName

    def get_queryset(self) -> QuerySet[Image]:
        """Return the visible images."""
        return Image.objects.visible_to(asker(self.request))


class PresetList(ListAPIView[ResourcePreset]):
    """Named amounts of resources."""

    queryset = ResourcePreset.objects.none()
    serializer_class = PresetBody
    pagination_class = ByRank

    def get_queryset(self) -> QuerySet[ResourcePreset]:
        """Return the visible presets."""
        return ResourcePreset.objects.visible_to(asker(self.request)).select_related("resource_group")


class ResourceGroupList(ListAPIView[ResourceGroup]):
    """Resource groups with the room in them."""

    queryset = ResourceGroup.objects.none()
    serializer_class = ResourceGroupBody
    pagination_class = ByName

    def get_queryset(self) -> QuerySet[ResourceGroup]:
        """Return the groups that are open to the user."""
        return ResourceGroup.objects.visible_to(asker(self.request))

    def paginate_queryset(self, queryset: Any) -> Any:
        """Return one page of groups with their totals, in four queries whatever their number."""
        return with_room(super().paginate_queryset(queryset) or [])


class AgentList(ListAPIView[Agent]):
    """The machines, for superadmins; empty for others."""

    queryset = Agent.objects.none()
    serializer_class = AgentBody
    pagination_class = ByName

    def get_queryset(self) -> QuerySet[Agent]:
        """Return the visible agents."""
        return Agent.objects.visible_to(asker(self.request)).select_related("resource_group")

    def get_serializer_context(self) -> dict[str, Any]:
        """Return what the rows need beside themselves: what is taken on each agent."""
        superadmin = getattr(self.request.user, "is_superadmin", False)
        return {**super().get_serializer_context(), "occupied": occupied_by_agent() if superadmin else {}}


class AgentDetail(RetrieveAPIView[Agent]):
    """One machine, for superadmins."""

    queryset = Agent.objects.none()
    serializer_class = AgentBody
    lookup_url_kwarg = "agent_id"

    def get_queryset(self) -> QuerySet[Agent]:
        """Return the visible agents."""
        return Agent.objects.visible_to(asker(self.request)).select_related("resource_group")

    def get_serializer_context(self) -> dict[str, Any]:
        """Return what the row needs beside itself: what is taken on the agent."""
        agent_id = self.kwargs.get("agent_id")
        return {**super().get_serializer_context(), "occupied": occupied_by_agent([agent_id]) if agent_id else {}}


def with_room(groups: list[ResourceGroup]) -> list[dict[str, Any]]:
    """Return the groups with capacity, what is taken and what is free, over agents that answer and take sessions."""
    agents = list(Agent.objects.filter(resource_group__in=groups, status=Agent.Status.ALIVE, schedulable=True))
    taken = occupied_by_agent([agent.pk for agent in agents])
    waiting = ComputeSession.objects.pending().filter(resource_group__in=groups).order_by()
    pending = dict(waiting.values_list("resource_group").annotate(Count("pk")))
    members: dict[int, list[Agent]] = defaultdict(list)
    for agent in agents:
        members[agent.resource_group_id].append(agent)
    return [_room(group, members[group.pk], taken, pending.get(group.pk, 0)) for group in groups]


def _room(group: ResourceGroup, agents: list[Agent], taken: dict[Any, Slots], pending: int) -> dict[str, Any]:
    capacity = sum((agent.slots for agent in agents), Slots())
    occupied = sum((taken.get(agent.pk, Slots()) for agent in agents), Slots())
    free = Slots()
    for agent in agents:
        left = agent.slots - taken.get(agent.pk, Slots())
        free += Slots({name: max(0, amount) for name, amount in left.items()})
    return {
        "name": group.name,
        "description": group.description,
        "is_active": group.is_active,
        "agents": len(agents),
        "pending": pending,
        "capacity": capacity.to_json(),
        "occupied": {name: decimal_text(occupied[name]) for name in capacity},
        "free": {name: decimal_text(free[name]) for name in capacity},
    }
