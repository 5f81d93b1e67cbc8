"""Bodies of images and of their changes."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from backendai.domain.catalog.models import Image
from backendai.portal.api.frame.parsing import AmountsField, StrictSerializer

_Amounts = {"type": "object", "additionalProperties": {"type": "string"}}
_PROJECT = {"id": {"type": "string", "format": "uuid"}, "name": {"type": "string"}}
_Names = {"type": "array", "items": {"type": "string"}}


class ImageBody(serializers.ModelSerializer[Image]):
    """An image to start sessions from."""

    title = serializers.CharField(source="display_name")
    owner = serializers.SerializerMethodField(help_text="Who made it of a session; null: nobody did.")
    aliases = serializers.SerializerMethodField()
    minimum = serializers.SerializerMethodField()
    maximum = serializers.SerializerMethodField()

    class Meta:
        model = Image
        fields = [
            "id", "name", "aliases", "title", "description", "reference", "architecture", "digest", "size_bytes",
            "minimum", "maximum", "is_enabled", "is_customized", "owner", "created_at",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(_Names)
    def get_aliases(self, image: Image) -> list[str]:
        """Return the image's aliases, which the query has prefetched."""
        return [alias.name for alias in image.aliases.all()]

    def get_owner(self, image: Image) -> str | None:
        """Return the e-mail address of the image's creator, if it was saved from a session."""
        return image.owner.email if image.owner else None

    @extend_schema_field(_Amounts)
    def get_minimum(self, image: Image) -> dict[str, str]:
        """Return the smallest slots of a kernel, as decimal strings."""
        return image.minimum_slots.to_json()

    @extend_schema_field(_Amounts)
    def get_maximum(self, image: Image) -> dict[str, str]:
        """Return the largest slots of a kernel, as decimal strings. Missing slots have no limit."""
        amounts: dict[str, str] = image.maximum
        return amounts


class OwnImageBody(ImageBody):
    """An image that the user saved from a session."""

    projects = serializers.SerializerMethodField(help_text="Whose members may start sessions from it too.")

    class Meta(ImageBody.Meta):
        fields = [*ImageBody.Meta.fields, "projects"]
        read_only_fields = fields

    @extend_schema_field({"type": "array", "items": {"type": "object", "properties": _PROJECT}})
    def get_projects(self, image: Image) -> list[dict[str, str]]:
        """Return the projects that the image is shared with, which the query has prefetched."""
        shares = sorted(image.shares.all(), key=lambda share: share.project.name)
        return [{"id": str(share.project_id), "name": share.project.name} for share in shares]


class ImageChange(StrictSerializer):
    """Changes of an image."""

    title = serializers.CharField(max_length=128, required=False, allow_blank=True)
    description = serializers.CharField(max_length=255, required=False, allow_blank=True)
    is_enabled = serializers.BooleanField(required=False)
    minimum = AmountsField(required=False)
    maximum = AmountsField(required=False)
    services = serializers.CharField(
        max_length=1024, required=False, allow_blank=True, help_text="Instead of its label; empty: as the label says."
    )
    aliases = serializers.ListField(
        child=serializers.CharField(max_length=128), required=False, help_text="All its other names."
    )
    domains = serializers.ListField(
        child=serializers.CharField(max_length=128),
        required=False,
        help_text="Names of the domains that alone may use it; none: all may.",
    )
    digest = serializers.CharField(
        max_length=128,
        required=False,
        allow_blank=True,
        trim_whitespace=False,
        help_text="New sessions start exactly this; empty: any.",
    )


class ImageRequest(ImageChange):
    """A new image."""

    name = serializers.CharField(max_length=128)
    reference = serializers.CharField(max_length=255, help_text="Where agents find it, with its tag.")
    architecture = serializers.CharField(max_length=32, required=False, help_text="Default: any.")


def image_values(data: dict[str, Any]) -> dict[str, Any]:
    """Return the request's values for the service, with plain dicts."""
    return {name: dict(value) if isinstance(value, dict) else value for name, value in data.items()}
