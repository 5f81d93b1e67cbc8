"""What one may pick, and what it runs on."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from rest_framework.generics import ListAPIView, RetrieveAPIView

from backendai.api.authentication import asker
from backendai.api.other_bodies import AgentBody, ImageBody, ResourceGroupBody
from backendai.api.paging import ByName
from backendai.catalog.models import Image
from backendai.cluster.models import Agent, ResourceGroup
from backendai.compute.services.ledger import occupied_by_agent
from backendai.core.slots import decimal_text
from backendai.planning.room import GroupRoom, room_in


class ImageList(ListAPIView[Image]):
    """Images that sessions start from."""

    queryset = Image.objects.none()
    serializer_class = ImageBody
    pagination_class = ByName

    def get_queryset(self) -> QuerySet[Image]:
        """Return the visible images."""
        return Image.objects.visible_to(asker(self.request))


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
    return [_body(room) for room in room_in(groups)]


def _body(room: GroupRoom) -> dict[str, Any]:
    return {
        "name": room.group.name,
        "description": room.group.description,
        "is_active": room.group.is_active,
        "agents": room.agents,
        "pending": room.waiting,
        "capacity": room.capacity.to_json(),
        "occupied": {name: decimal_text(room.occupied[name]) for name in room.capacity},
        "free": {name: decimal_text(room.free[name]) for name in room.capacity},
    }
