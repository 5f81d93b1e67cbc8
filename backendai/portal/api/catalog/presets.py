"""Resource presets, and whether they fit the available resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import GenericAPIView, ListAPIView, RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.core.slots import decimal_text
from backendai.domain.accounts.scopes import Scope
from backendai.domain.catalog.models import ResourcePreset
from backendai.domain.catalog.presets import delete_preset, write_preset
from backendai.domain.compute.services.requests.check import place_of
from backendai.domain.planning.amounts.allowances import Allowance, HolderLimits
from backendai.domain.planning.amounts.availability import Availability, availability
from backendai.portal.api.frame.authentication import SuperadminsWrite, user_of
from backendai.portal.api.frame.fields import DecimalAmounts
from backendai.portal.api.frame.named import group_named
from backendai.portal.api.frame.paging import ByRank
from backendai.portal.api.frame.parsing import AmountsField, StrictSerializer, values_of
from backendai.portal.api.frame.versions import VersionedView
from backendai.portal.api.frame.views import ResourceView
from backendai.portal.api.sessions.explanations import ReasonBody


class PresetBody(serializers.ModelSerializer[ResourcePreset]):
    """A named amount of resources."""

    resource_group = serializers.SlugRelatedField[Any](slug_field="name", read_only=True, allow_null=True)
    resources = DecimalAmounts(source="amounts", read_only=True)

    class Meta:
        model = ResourcePreset
        fields = ["id", "name", "resource_group", "resources", "shm_bytes", "rank"]
        read_only_fields = fields


class PresetRequest(StrictSerializer):
    """A preset. In a change, omitted fields stay."""

    name = serializers.CharField(max_length=64)
    resource_group = serializers.CharField(
        max_length=63, required=False, allow_null=True, help_text="The name of the group; null: all groups."
    )
    resources = AmountsField()
    shm_bytes = serializers.IntegerField(required=False, allow_null=True, min_value=1, max_value=2**62)
    rank = serializers.IntegerField(required=False, min_value=0, max_value=2**31 - 1)


class CheckPresetsRequest(StrictSerializer):
    """Group and project of the launch; omitted fields get their default."""

    resource_group = serializers.CharField(max_length=63, default="", allow_blank=True)
    project = serializers.CharField(max_length=64, default="", allow_blank=True, help_text="ID or name.")


class AllowanceBody(serializers.Serializer[Any]):
    """Limit, usage and remaining amount of one slot; null: unlimited."""

    limit = serializers.CharField(allow_null=True)
    used = serializers.CharField()
    remaining = serializers.CharField(allow_null=True)


class SessionAllowanceBody(serializers.Serializer[Any]):
    """Limit, usage and remaining number of sessions; null: unlimited."""

    limit = serializers.IntegerField(allow_null=True)
    used = serializers.IntegerField()
    remaining = serializers.IntegerField(allow_null=True)


class HolderBody(serializers.Serializer[Any]):
    """The limits of one holder that has a policy."""

    scope = serializers.ChoiceField(choices=["key-pair", "user", "project", "domain"])
    name = serializers.CharField()
    slots = serializers.DictField(child=AllowanceBody())
    sessions = SessionAllowanceBody()


class RoomBody(serializers.Serializer[Any]):
    """The resources of the reachable agents that take sessions."""

    agents = serializers.IntegerField()
    total = serializers.DictField(child=serializers.CharField())
    used = serializers.DictField(child=serializers.CharField())
    free = serializers.DictField(child=serializers.CharField())
    max_per_agent = serializers.DictField(
        child=serializers.CharField(), help_text="The largest amount of a single agent."
    )
    max_free = serializers.DictField(
        child=serializers.CharField(), help_text="The largest free amount of a single agent."
    )


class PresetFitBody(PresetBody):
    """A preset, and whether one session with it could start now."""

    fits = serializers.BooleanField()
    reason = ReasonBody(allow_null=True)

    class Meta(PresetBody.Meta):
        fields = [*PresetBody.Meta.fields, "fits", "reason"]
        read_only_fields = fields


class AvailabilityBody(serializers.Serializer[Any]):
    """The user's remaining limits, the group's resources, and the presets that fit on a single agent now."""

    project = serializers.CharField()
    resource_group = serializers.CharField()
    limits = HolderBody(many=True, help_text="Holders whose policy limits the session, the narrowest first.")
    remaining = serializers.DictField(
        child=serializers.CharField(allow_null=True), help_text="The rest of the strictest limit; null: unlimited."
    )
    remaining_sessions = serializers.IntegerField(allow_null=True)
    room = RoomBody()
    presets = PresetFitBody(many=True)


def availability_body(found: Availability) -> dict[str, Any]:
    """Return the availability as JSON values."""
    names, amounts = list(found.remaining), found.amounts

    def texts(slots: Mapping[str, int]) -> dict[str, str]:
        return {name: decimal_text(slots[name]) for name in names if name in amounts.total}

    return {
        "project": found.project.name,
        "resource_group": found.group.name,
        "limits": [_holder(holder) for holder in found.holders],
        "remaining": {name: _text(amount) for name, amount in found.remaining.items()},
        "remaining_sessions": found.remaining_sessions,
        "room": {
            "agents": amounts.agents,
            "total": texts(amounts.total),
            "used": texts(amounts.used),
            "free": texts(amounts.free),
            "max_per_agent": texts(amounts.max_per_agent),
            "max_free": texts(amounts.max_free),
        },
        "presets": [
            {
                **PresetBody(fit.preset).data,
                "fits": fit.reason is None,
                "reason": fit.reason and ReasonBody(fit.reason).data,
            }
            for fit in found.presets
        ],
    }


def _holder(holder: HolderLimits) -> dict[str, Any]:
    slots = {name: _allowance(allowance) for name, allowance in holder.slots.items()}
    sessions = holder.sessions
    return {
        "scope": holder.scope,
        "name": holder.name,
        "slots": slots,
        "sessions": {"limit": sessions.limit, "used": sessions.used, "remaining": sessions.remaining},
    }


def _allowance(one: Allowance) -> dict[str, str | None]:
    return {"limit": _text(one.limit), "used": decimal_text(one.used), "remaining": _text(one.remaining)}


def _text(amount: int | None) -> str | None:
    return None if amount is None else decimal_text(amount)


class PresetView(ResourceView[ResourcePreset]):
    """The base of the views of presets."""

    queryset = ResourcePreset.objects.select_related("resource_group")
    serializer_class = PresetBody
    lookup_url_kwarg = "preset_id"
    permission_classes = [SuperadminsWrite]
    token_scopes = (Scope.ADMIN,)


class PresetList(PresetView, ListAPIView[ResourcePreset]):
    """Named amounts of resources; superadmins create them."""

    pagination_class = ByRank

    @extend_schema(request=PresetRequest, responses={201: PresetBody})
    def post(self, request: Request) -> Response:
        """Create a preset; its name is unique in its group, and among those for all groups."""
        values = _values(values_of(PresetRequest, request.data))
        return self.answer(write_preset(self.user.pk, ResourcePreset(), values), status.HTTP_201_CREATED)


class PresetDetail(VersionedView, PresetView, RetrieveAPIView[ResourcePreset]):
    """One preset; superadmins change it."""

    versioned = (ResourcePreset, "pk")

    @extend_schema(request=PresetRequest, responses=PresetBody)
    def patch(self, request: Request, preset_id: int) -> Response:
        """Change the given fields; launched sessions keep their amounts."""
        preset, values = self.get_object(), _values(values_of(PresetRequest, request.data, partial=True))
        return self.answer(write_preset(self.user.pk, preset, values))

    def delete(self, request: Request, preset_id: int) -> Response:
        """Delete the preset."""
        delete_preset(self.user.pk, self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)


class CheckPresets(GenericAPIView[Any]):
    """The available resources and the presets that fit."""

    serializer_class = AvailabilityBody
    token_scopes = (Scope.READ,)  # it changes nothing

    @extend_schema(request=CheckPresetsRequest, responses=AvailabilityBody)
    def post(self, request: Request) -> Response:
        """Return the remaining limits, the group's resources, and the presets.

        Each preset says whether it fits on a single agent now, or the reason. Changes nothing.
        """
        values = values_of(CheckPresetsRequest, request.data)
        project, group = place_of(user_of(request), **values)
        return Response(availability_body(availability(user_of(request), project, group)))


def _values(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request's values by the fields of the model."""
    values = {name: data[name] for name in ("name", "shm_bytes", "rank") if name in data}
    if "resources" in data:
        values["slots"] = dict(data["resources"])
    if "resource_group" in data:
        name = data["resource_group"]
        values["resource_group"] = None if name is None else group_named(name)
    return values
