"""Images that sessions start from."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import ListAPIView, RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.catalog.images import change_image, create_image, delete_image
from backendai.domain.catalog.models import Image
from backendai.domain.compute.services.images.own_images import delete_own_image
from backendai.portal.api.catalog.image_bodies import ImageBody, ImageChange, ImageRequest, image_values
from backendai.portal.api.frame.authentication import SuperadminsWrite, superadmin_of
from backendai.portal.api.frame.filters import ImageFilter
from backendai.portal.api.frame.named import domains_named
from backendai.portal.api.frame.paging import ByName
from backendai.portal.api.frame.parsing import values_of
from backendai.portal.api.frame.versions import VersionedView
from backendai.portal.api.frame.views import ResourceView


class ImageView(ResourceView[Image]):
    """The base of the views of images."""

    queryset = Image.objects.select_related("owner").prefetch_related("aliases")
    serializer_class = ImageBody
    lookup_url_kwarg = "image_id"


class ImageList(ImageView, ListAPIView[Image]):
    """Images that sessions start from; superadmins add one."""

    pagination_class = ByName
    filterset_class = ImageFilter
    token_scopes = (Scope.ADMIN,)

    @extend_schema(request=ImageRequest, responses={201: ImageBody})
    def post(self, request: Request) -> Response:
        """Add an image to the catalogue; superadmins only."""
        made = create_image(superadmin_of(request).pk, _values(ImageRequest, request))
        return self.answer(get_object_or_404(self.get_queryset(), pk=made.pk), status.HTTP_201_CREATED)


class ImageDetail(VersionedView, ImageView, RetrieveAPIView[Image]):
    """One image; superadmins change it."""

    versioned = (Image, "pk")

    permission_classes = [SuperadminsWrite]
    token_scopes = (Scope.ADMIN,)

    @extend_schema(request=ImageChange, responses=ImageBody)
    def patch(self, request: Request, image_id: UUID) -> Response:
        """Change the given fields; launched sessions keep their values."""
        image, values = self.get_object(), _values(ImageChange, request)
        change_image(self.user.pk, image, values)
        return self.answer(self.get_object())

    def delete(self, request: Request, image_id: UUID) -> Response:
        """Delete the image from the catalogue; agents and registries keep it.

        409 if sessions were started from it. An image that was saved from a session is also deleted on its agents;
        409 while sessions use it.
        """
        image = self.get_object()
        if image.is_customized:
            delete_own_image(self.user, image, now=timezone.now())
        else:
            delete_image(self.user.pk, image)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _values(kind: type[ImageChange], request: Request) -> dict[str, Any]:
    values = image_values(values_of(kind, request.data))
    return values | {"domains": domains_named(values["domains"])} if "domains" in values else values
