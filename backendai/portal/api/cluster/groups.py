"""Resource groups: their free resources for their users, and their settings for superadmins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.core.slots import decimal_text
from backendai.domain.accounts.models import Domain, KeyPair, Project
from backendai.domain.accounts.scopes import Scope
from backendai.domain.cluster.groups.changes import change_group, create_group, delete_group
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.planning.amounts.free import GroupRoom, room_in
from backendai.portal.api.frame.authentication import superadmin_of
from backendai.portal.api.frame.paging import ByName
from backendai.portal.api.frame.parsing import refuse_unknown, values_of
from backendai.portal.api.frame.versions import VersionedView
from backendai.portal.api.frame.views import ResourceView
from backendai.portal.api.other_bodies import ResourceGroupBody


class GroupSettingsBody(serializers.ModelSerializer[ResourceGroup]):
    """The settings of a group.

    Times are in seconds or as ``[days] hh:mm:ss``. ``session_defaults``: ``priority``, ``batch_timeout`` (seconds),
    ``shm``, ``environ``.
    """

    domains = serializers.SlugRelatedField(
        many=True, slug_field="name", queryset=Domain.objects.all(), required=False, help_text="By name."
    )
    projects = serializers.PrimaryKeyRelatedField(
        many=True, queryset=Project.objects.all(), required=False, help_text="By ID."
    )
    key_pairs = serializers.PrimaryKeyRelatedField(
        many=True, queryset=KeyPair.objects.all(), required=False, help_text="By access key."
    )

    class Meta:
        model = ResourceGroup
        exclude: ClassVar[list[str]] = ["id", "created_at", "next_agent", "tries_counted_at"]
        extra_kwargs: ClassVar[dict[str, Any]] = {"is_default": {"validators": []}, "name": {"validators": []}}

    def to_internal_value(self, data: Any) -> Any:
        """Return the validated values. Raises ValidationError that names unknown fields."""
        if isinstance(data, Mapping):
            refuse_unknown(data, self.fields)
        return super().to_internal_value(data)


class ResourceGroupView(ResourceView[ResourceGroup]):
    """The base of the views of resource groups."""

    token_scopes = (Scope.ADMIN,)
    queryset = ResourceGroup.objects.all()
    serializer_class = ResourceGroupBody
    lookup_field = "name"
    lookup_url_kwarg = "group"


class ResourceGroupList(ResourceGroupView, ListAPIView[ResourceGroup]):
    """Resource groups with their free resources."""

    pagination_class = ByName

    def paginate_queryset(self, queryset: Any) -> Any:
        """Return one page of groups with their totals, in four queries."""
        return [_body(room) for room in room_in(super().paginate_queryset(queryset) or [])]

    @extend_schema(request=GroupSettingsBody, responses={201: GroupSettingsBody})
    def post(self, request: Request) -> Response:
        """Create a group; superadmins only."""
        actor = superadmin_of(request)
        values = values_of(GroupSettingsBody, request.data)
        group = create_group(actor, values)
        return Response(GroupSettingsBody(group).data, status=status.HTTP_201_CREATED)


class ResourceGroupDetail(ResourceGroupView):
    """One resource group."""

    def get(self, request: Request, group: str) -> Response:
        """Return the group with its free resources."""
        return Response(_body(room_in([self.get_object()])[0]))

    def delete(self, request: Request, group: str) -> Response:
        """Delete an unused group; 409 with the counts of objects that belong to it."""
        actor = superadmin_of(request)
        delete_group(actor.pk, get_object_or_404(ResourceGroup, name=group))
        return Response(status=status.HTTP_204_NO_CONTENT)


class ResourceGroupSettings(VersionedView, GenericAPIView[ResourceGroup]):
    """The settings of one group."""

    versioned = (ResourceGroup, "name")

    token_scopes = (Scope.ADMIN,)
    serializer_class = GroupSettingsBody

    def get(self, request: Request, group: str) -> Response:
        """Return all settings of the group."""
        superadmin_of(request)
        return Response(GroupSettingsBody(_with_lists(group)).data)

    @extend_schema(request=GroupSettingsBody(partial=True), responses=GroupSettingsBody)
    def patch(self, request: Request, group: str) -> Response:
        """Change the given fields; they apply from the next scheduler pass."""
        actor, found = superadmin_of(request), _with_lists(group)
        body = GroupSettingsBody(found, data=request.data, partial=True)
        body.is_valid(raise_exception=True)
        change_group(actor, found, body.validated_data)
        return Response(GroupSettingsBody(_with_lists(found.name)).data)


def _with_lists(name: str) -> ResourceGroup:
    rows = ResourceGroup.objects.prefetch_related("domains", "projects", "key_pairs")
    return get_object_or_404(rows, name=name)


def _body(room: GroupRoom) -> dict[str, Any]:
    """Return the group with its capacity and its occupied and free amounts.

    They count the reachable agents that take sessions.
    """
    return {
        "name": room.group.name,
        "description": room.group.description,
        "is_active": room.group.is_active,
        "is_default": room.group.is_default,
        "allowed_session_types": room.group.allowed_session_types,
        "agents": room.agents,
        "pending": room.waiting,
        "capacity": room.capacity.to_json(),
        "occupied": {name: decimal_text(room.occupied[name]) for name in room.capacity},
        "free": {name: decimal_text(room.free[name]) for name in room.capacity},
    }
