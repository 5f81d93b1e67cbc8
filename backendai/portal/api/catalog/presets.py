"""Resource presets, and whether they fit the available resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import GenericAPIView, ListAPIView, RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.core.errors import UserError
from backendai.domain.accounts.scopes import Scope
from backendai.domain.catalog.models import ResourcePreset
from backendai.domain.catalog.presets import delete_preset, write_preset
from backendai.domain.cluster.models.groups import ResourceGroup
from backendai.domain.compute.services.requests.check import place_of
from backendai.domain.planning.amounts.availability import availability
from backendai.portal.api.catalog.preset_bodies import (
    AvailabilityBody,
    CheckPresetsRequest,
    PresetBody,
    PresetChange,
    PresetRequest,
    availability_body,
)
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.paging import ByRank
from backendai.portal.api.frame.permissions import SuperadminsWrite


class PresetList(ListAPIView[ResourcePreset]):
    """Named amounts of resources; superadmins create them."""

    queryset = ResourcePreset.objects.none()
    serializer_class = PresetBody
    pagination_class = ByRank
    permission_classes = [SuperadminsWrite]
    token_scopes = (Scope.ADMIN,)

    def get_queryset(self) -> QuerySet[ResourcePreset]:
        """Return the visible presets."""
        return ResourcePreset.objects.visible_to(user_of(self.request)).select_related("resource_group")

    @extend_schema(request=PresetRequest, responses={201: PresetBody})
    def post(self, request: Request) -> Response:
        """Create a preset; its name is unique in its group, and among those for all groups."""
        body = PresetRequest(data=request.data)
        body.is_valid(raise_exception=True)
        preset = write_preset(user_of(request).pk, ResourcePreset(), _values(body.validated_data))
        return Response(PresetBody(preset).data, status=status.HTTP_201_CREATED)


class PresetDetail(RetrieveAPIView[ResourcePreset]):
    """One preset; superadmins change it."""

    queryset = ResourcePreset.objects.none()
    serializer_class = PresetBody
    lookup_url_kwarg = "preset_id"
    permission_classes = [SuperadminsWrite]
    token_scopes = (Scope.ADMIN,)

    def get_queryset(self) -> QuerySet[ResourcePreset]:
        """Return the visible presets."""
        return ResourcePreset.objects.visible_to(user_of(self.request)).select_related("resource_group")

    @extend_schema(request=PresetChange, responses=PresetBody)
    def patch(self, request: Request, preset_id: int) -> Response:
        """Change the given fields; launched sessions keep their amounts."""
        preset = get_object_or_404(self.get_queryset(), pk=preset_id)
        body = PresetChange(data=request.data)
        body.is_valid(raise_exception=True)
        return Response(PresetBody(write_preset(user_of(request).pk, preset, _values(body.validated_data))).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, preset_id: int) -> Response:
        """Delete the preset."""
        delete_preset(user_of(request).pk, get_object_or_404(self.get_queryset(), pk=preset_id))
        return Response(status=status.HTTP_204_NO_CONTENT)


class CheckPresets(GenericAPIView[Any]):
    """The available resources and the presets that fit."""

    serializer_class = AvailabilityBody
    token_scopes = (Scope.READ,)  # it changes nothing
    filter_backends: list[Any] = []

    @extend_schema(request=CheckPresetsRequest, responses=AvailabilityBody)
    def post(self, request: Request) -> Response:
        """Return the remaining limits, the group's resources, and the presets.

        Each preset says whether it fits on a single agent now, or the reason. Changes nothing.
        """
        body = CheckPresetsRequest(data=request.data)
        body.is_valid(raise_exception=True)
        project, group = place_of(user_of(request), **body.validated_data)
        return Response(availability_body(availability(user_of(request), project, group)))


def _values(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request's values by the fields of the model."""
    values = {name: data[name] for name in ("name", "shm_bytes", "rank") if name in data}
    if "resources" in data:
        values["slots"] = dict(data["resources"])
    if "resource_group" in data:
        values["resource_group"] = _group_named(data["resource_group"])
    return values


def _group_named(name: str | None) -> ResourceGroup | None:
    if name is None:
        return None
    group = ResourceGroup.objects.filter(name=name).first()
    if group is None:
        raise UserError(
            "Resource group {name} not found.", name=repr(name), field="resource_group", code="unknown-resource-group"
        )
    return group
