"""Bodies of slot types, settings of the site and announcements."""

from __future__ import annotations

from rest_framework import serializers

from backendai.domain.cluster.groups.session_network import LARGEST_BUNDLE
from backendai.domain.cluster.models.groups import Announcement, SlotType
from backendai.portal.api.frame.answers import Answer
from backendai.portal.api.frame.parsing import AmountsField, StrictSerializer


class SlotTypeBody(Answer[SlotType]):
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


class AnnouncementBody(Answer[Announcement]):
    """An announcement at the top of every page."""

    tone = serializers.CharField()

    class Meta:
        model = Announcement
        fields = ["id", "text", "tone", "starts_at", "ends_at"]
        read_only_fields = fields
