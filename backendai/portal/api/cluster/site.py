"""Settings of the whole site: slot types and settings."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.core.errors import UserError
from backendai.base.core.slots import parse_amount
from backendai.domain.accounts.scopes import Scope
from backendai.domain.cluster.groups.session_network import LARGEST_BUNDLE
from backendai.domain.cluster.models import SlotType
from backendai.domain.cluster.site import change_site, stored_settings
from backendai.domain.cluster.slot_types import change_slot_type
from backendai.portal.api.frame.authentication import superadmin_of
from backendai.portal.api.frame.paging import ByRank
from backendai.portal.api.frame.parsing import AmountsField, StrictSerializer, values_of


class SlotTypeBody(serializers.ModelSerializer[SlotType]):
    """A slot type, and how it is displayed."""

    kind = serializers.CharField()
    step = serializers.CharField(help_text="The step of amounts, in the slot's unit.")

    class Meta:
        model = SlotType
        fields = ["name", "kind", "display_name", "unit", "description", "step", "rank", "is_enabled"]
        read_only_fields = fields


class SlotTypeChange(StrictSerializer):
    """Changes of a slot type; omitted fields stay unchanged."""

    display_name = serializers.CharField(required=False, max_length=64)
    unit = serializers.CharField(required=False, max_length=16, allow_blank=True)
    description = serializers.CharField(required=False, max_length=255, allow_blank=True)
    kind = serializers.ChoiceField(required=False, choices=SlotType.Kind.choices)
    step = serializers.CharField(required=False, max_length=40)
    rank = serializers.IntegerField(required=False, min_value=0, max_value=30_000)
    is_enabled = serializers.BooleanField(required=False)


class SettingsBody(StrictSerializer):
    """The settings of the site; a request contains those to change."""

    custom_allocation = serializers.BooleanField(required=False)
    agent_select = serializers.BooleanField(required=False)
    manual_image = serializers.BooleanField(required=False, help_text="The launch page accepts the name of an image.")
    group_resources_visible = serializers.BooleanField(required=False)
    public_apps = serializers.BooleanField(required=False, help_text="Owners can make apps public.")
    session_shares = serializers.BooleanField(required=False, help_text="Owners can share sessions.")
    container_caps = AmountsField(required=False, help_text="The maximum of each slot for one kernel.")
    session_authorities = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=LARGEST_BUNDLE,
        help_text="Certificates in PEM that programs in sessions trust, beside the public ones.",
    )
    package_index = serializers.CharField(
        required=False, allow_blank=True, help_text="For pip and uv in sessions; every user can read the address there."
    )
    package_extra_indexes = serializers.ListField(child=serializers.CharField(), required=False)
    package_trusted_hosts = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="Their certificates are not checked."
    )
    session_http_proxy = serializers.CharField(required=False, allow_blank=True)
    session_https_proxy = serializers.CharField(required=False, allow_blank=True)
    session_no_proxy = serializers.ListField(child=serializers.CharField(), required=False)


class SlotTypeList(ListAPIView[SlotType]):
    """The slot types."""

    queryset = SlotType.objects.all()
    serializer_class = SlotTypeBody
    pagination_class = ByRank


class SlotTypeDetail(GenericAPIView[SlotType]):
    """One slot type."""

    serializer_class = SlotTypeBody
    token_scopes = (Scope.ADMIN,)

    def get(self, request: Request, slot: str) -> Response:
        """Return the slot type."""
        return Response(SlotTypeBody(get_object_or_404(SlotType, name=slot)).data)

    @extend_schema(request=SlotTypeChange, responses=SlotTypeBody)
    def patch(self, request: Request, slot: str) -> Response:
        """Change how the slot type is displayed and allocated; superadmins only."""
        actor = superadmin_of(request)
        found = get_object_or_404(SlotType, name=slot)
        values = values_of(SlotTypeChange, request.data)
        if "step" in values:
            values["quantum"] = parse_amount("step", values.pop("step"), field="step")
        try:
            change_slot_type(actor, found, values)
        except ValidationError as error:
            field, texts = next(iter(error.message_dict.items()))
            name = "step" if field == "quantum" else field
            raise UserError(" ".join(texts), field=name, code="invalid-slot-type") from None
        return Response(SlotTypeBody(found).data)


class SiteSettingsView(GenericAPIView[Any]):
    """The settings of the site."""

    serializer_class = SettingsBody
    token_scopes = (Scope.ADMIN,)

    def get(self, request: Request) -> Response:
        """Return all settings; superadmins only."""
        superadmin_of(request)
        return Response(stored_settings())

    @extend_schema(request=SettingsBody, responses=SettingsBody)
    def patch(self, request: Request) -> Response:
        """Change the given settings; they apply from now on."""
        actor = superadmin_of(request)
        values = values_of(SettingsBody, request.data)
        change_site(actor, values, now=timezone.now())
        return Response(stored_settings())
