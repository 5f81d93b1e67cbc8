"""Images that sessions start from."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import ListAPIView, RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.core.errors import UserError
from backendai.domain.accounts.models import Domain
from backendai.domain.accounts.scopes import Scope
from backendai.domain.catalog.images import change_image, delete_image
from backendai.domain.catalog.models import Image
from backendai.domain.compute.services.images.own_images import delete_own_image
from backendai.portal.api.catalog.image_bodies import ImageBody, ImageChange, image_values
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.filters import ImageFilter, RequestedFilters
from backendai.portal.api.frame.paging import ByName
from backendai.portal.api.frame.permissions import SuperadminsWrite


class ImageList(ListAPIView[Image]):
    """Images that sessions start from."""

    queryset = Image.objects.none()
    serializer_class = ImageBody
    pagination_class = ByName
    filter_backends = [RequestedFilters]
    filterset_class = ImageFilter

    def get_queryset(self) -> QuerySet[Image]:
        """Return the visible images."""
        return Image.objects.visible_to(user_of(self.request)).select_related("owner").prefetch_related("aliases")


class ImageDetail(RetrieveAPIView[Image]):
    """One image; superadmins change it."""

    queryset = Image.objects.none()
    serializer_class = ImageBody
    lookup_url_kwarg = "image_id"
    permission_classes = [SuperadminsWrite]
    token_scopes = (Scope.ADMIN,)

    def get_queryset(self) -> QuerySet[Image]:
        """Return the visible images."""
        return Image.objects.visible_to(user_of(self.request)).select_related("owner").prefetch_related("aliases")

    @extend_schema(request=ImageChange, responses=ImageBody)
    def patch(self, request: Request, image_id: UUID) -> Response:
        """Change the given fields; launched sessions keep their values."""
        image = get_object_or_404(self.get_queryset(), pk=image_id)
        body = ImageChange(data=request.data)
        body.is_valid(raise_exception=True)
        values = image_values(body.validated_data)
        if "domains" in values:
            values["domains"] = _domains_named(values["domains"])
        change_image(user_of(request).pk, image, values)
        return Response(ImageBody(get_object_or_404(self.get_queryset(), pk=image_id)).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, image_id: UUID) -> Response:
        """Delete the image from the catalogue; agents and registries keep it.

        409 if sessions were started from it. An image that was saved from a session is also deleted on its agents;
        409 while sessions use it.
        """
        image = get_object_or_404(self.get_queryset(), pk=image_id)
        if image.is_customized:
            delete_own_image(user_of(request), image, now=timezone.now())
        else:
            delete_image(user_of(request).pk, image)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _domains_named(names: list[str]) -> list[Any]:
    found = {domain.name: domain for domain in Domain.objects.filter(name__in=names)}
    unknown = sorted(set(names) - found.keys())
    if unknown:
        raise UserError("Domain {unknown} not found.", unknown=repr(unknown[0]), field="domains", code="unknown-domain")
    return list(found.values())
