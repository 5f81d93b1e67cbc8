"""What one may pick."""

from __future__ import annotations

from django.db.models import QuerySet
from rest_framework.generics import ListAPIView

from backendai.api.authentication import asker
from backendai.api.other_bodies import ImageBody
from backendai.api.paging import ByName
from backendai.catalog.models import Image


class ImageList(ListAPIView[Image]):
    """Images that sessions start from."""

    queryset = Image.objects.none()
    serializer_class = ImageBody
    pagination_class = ByName

    def get_queryset(self) -> QuerySet[Image]:
        """Return the visible images."""
        return Image.objects.visible_to(asker(self.request))
