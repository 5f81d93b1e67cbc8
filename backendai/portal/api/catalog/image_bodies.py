"""Bodies of images and of their changes."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from backendai.domain.catalog.models import Image
from backendai.portal.api.frame.fields import DecimalAmounts
from backendai.portal.api.frame.parsing import AmountsField, StrictSerializer

_PROJECT = {"id": {"type": "string", "format": "uuid"}, "name": {"type": "string"}}


class ImageBody(serializers.ModelSerializer[Image]):
    """An image to start sessions from."""

    title = serializers.CharField(source="display_name")
    owner = serializers.CharField(
        source="owner.email", read_only=True, allow_null=True, help_text="Who made it of a session; null: nobody did."
    )
    aliases = serializers.SlugRelatedField[Any](many=True, slug_field="name", read_only=True)
    minimum = DecimalAmounts(source="minimum_slots", read_only=True)
    maximum = DecimalAmounts(read_only=True)

    class Meta:
        model = Image
        fields = [
            "id", "name", "aliases", "title", "description", "reference", "architecture", "digest", "size_bytes",
            "minimum", "maximum", "is_enabled", "is_customized", "owner", "created_at",
        ]  # fmt: skip
        read_only_fields = fields


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
