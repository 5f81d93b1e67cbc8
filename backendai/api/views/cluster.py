"""What one may pick."""

from __future__ import annotations

from django.db.models import QuerySet
from rest_framework.generics import ListAPIView

from backendai.api.authentication import asker
from backendai.api.other_bodies import ImageBody, PresetBody
from backendai.api.paging import ByName, ByRank
from backendai.catalog.models import Image, ResourcePreset


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
