"""Images that the user saved from sessions: creates, renames, shares and deletes them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.catalog.models import Image
from backendai.domain.catalog.shares import share_image, take_back_image
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.images.commits import start_commit
from backendai.domain.compute.services.images.own_images import delete_own_image, rename_own_image
from backendai.portal.api.catalog.image_bodies import OwnImageBody
from backendai.portal.api.cluster.jobs import JobBody
from backendai.portal.api.frame.paging import ByName
from backendai.portal.api.frame.parsing import StrictSerializer, values_of
from backendai.portal.api.frame.views import ResourceView
from backendai.portal.api.sessions.views import OneSessionView


class CommitRequest(StrictSerializer):
    """The name of the new image."""

    name = serializers.CharField(
        max_length=200, help_text="4 to 32 letters, digits, dashes and underscores; unique among your images."
    )


class ShareRequest(StrictSerializer):
    """The project to share the image with."""

    project = serializers.UUIDField(help_text="The ID of one of your projects.")


class SessionCommit(OneSessionView):
    """Saving a session as an image."""

    queryset = ComputeSession.objects.select_related("image__registry")
    serializer_class = JobBody

    @extend_schema(request=CommitRequest, responses={202: JobBody})
    def post(self, request: Request, session_id: UUID) -> Response:
        """Save the session as an image, and return the background job.

        Its result names the image. 409 if the session cannot be saved.
        """
        session, values = self.get_object(), values_of(CommitRequest, request.data)
        job = start_commit(self.user, session, values["name"], now=timezone.now())
        return self.answer(job, status.HTTP_202_ACCEPTED)


class OwnImageView(ResourceView[Image]):
    """The base of the views of images that the user saved from sessions."""

    queryset = Image.objects.select_related("owner").prefetch_related("aliases", "shares__project")
    serializer_class = OwnImageBody
    lookup_url_kwarg = "own_image_id"
    token_scopes = (Scope.SESSIONS,)

    def visible(self, rows: Any) -> QuerySet[Image]:
        """Return the user's own images."""
        found: QuerySet[Image] = rows.own_of(self.user)
        return found


class OwnImageList(OwnImageView, ListAPIView[Image]):
    """The images that the user saved from sessions."""

    pagination_class = ByName


class OwnImageDetail(OwnImageView):
    """One image of the user."""

    @extend_schema(request=CommitRequest, responses=OwnImageBody)
    def patch(self, request: Request, own_image_id: UUID) -> Response:
        """Change the image's title; its name for launches stays."""
        image, values = self.get_object(), values_of(CommitRequest, request.data)
        return self.answer(rename_own_image(self.user, image, values["name"]))

    def delete(self, request: Request, own_image_id: UUID) -> Response:
        """Delete the image, also on its agents. 409 while sessions that were started from it have not ended."""
        delete_own_image(self.user, self.get_object(), now=timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)


class OwnImageShares(OwnImageView):
    """The projects that an own image is shared with."""

    @extend_schema(request=ShareRequest, responses={201: OwnImageBody})
    def post(self, request: Request, own_image_id: UUID) -> Response:
        """Share the image with the members of one of the user's projects; sharing again changes nothing."""
        image, values = self.get_object(), values_of(ShareRequest, request.data)
        share_image(self.user, image, values["project"], now=timezone.now())
        return self.answer(self.get_object(), status.HTTP_201_CREATED)


class OwnImageShare(OwnImageView):
    """One project that an own image is shared with."""

    def delete(self, request: Request, own_image_id: UUID, project_id: UUID) -> Response:
        """Stop sharing; sessions that were started from it continue."""
        take_back_image(self.user, self.get_object(), project_id)
        return Response(status=status.HTTP_204_NO_CONTENT)
