"""Images that the user saved from sessions: creates, renames, shares and deletes them."""

from __future__ import annotations

from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.catalog.models import Image
from backendai.domain.catalog.shares import share_image, take_back_image
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.images.commits import start_commit
from backendai.domain.compute.services.images.own_images import delete_own_image, rename_own_image
from backendai.portal.api.catalog.image_bodies import OwnImageBody
from backendai.portal.api.cluster.jobs import JobBody
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.paging import ByName
from backendai.portal.api.frame.parsing import StrictSerializer, values_of


class CommitRequest(StrictSerializer):
    """The name of the new image."""

    name = serializers.CharField(
        max_length=200, help_text="4 to 32 letters, digits, dashes and underscores; unique among your images."
    )


class ShareRequest(StrictSerializer):
    """The project to share the image with."""

    project = serializers.UUIDField(help_text="The ID of one of your projects.")


class SessionCommit(GenericAPIView[BackgroundJob]):
    """Saving a session as an image."""

    serializer_class = JobBody
    token_scopes = (Scope.SESSIONS,)

    @extend_schema(request=CommitRequest, responses={202: JobBody})
    def post(self, request: Request, session_id: UUID) -> Response:
        """Save the session as an image, and return the background job.

        Its result names the image. 409 if the session cannot be saved.
        """
        visible = ComputeSession.objects.visible_to(user_of(request)).select_related("image__registry")
        session = get_object_or_404(visible, pk=session_id)
        values = values_of(CommitRequest, request.data)
        job = start_commit(user_of(request), session, values["name"], now=timezone.now())
        return Response(JobBody(job).data, status=status.HTTP_202_ACCEPTED)


class OwnImageList(ListAPIView[Image]):
    """The images that the user saved from sessions."""

    queryset = Image.objects.none()
    serializer_class = OwnImageBody
    pagination_class = ByName

    def get_queryset(self) -> QuerySet[Image]:
        """Return the user's own images."""
        return _own_of(self.request)


class OwnImageDetail(GenericAPIView[Image]):
    """One image of the user."""

    queryset = Image.objects.none()
    serializer_class = OwnImageBody
    token_scopes = (Scope.SESSIONS,)

    @extend_schema(request=CommitRequest, responses=OwnImageBody)
    def patch(self, request: Request, own_image_id: UUID) -> Response:
        """Change the image's title; its name for launches stays."""
        image = self._find(request, own_image_id)
        values = values_of(CommitRequest, request.data)
        return Response(OwnImageBody(rename_own_image(user_of(request), image, values["name"])).data)

    def delete(self, request: Request, own_image_id: UUID) -> Response:
        """Delete the image, also on its agents. 409 while sessions that were started from it have not ended."""
        delete_own_image(user_of(request), self._find(request, own_image_id), now=timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _find(self, request: Request, own_image_id: UUID) -> Image:
        found: Image = get_object_or_404(_own_of(request), pk=own_image_id)
        return found


class OwnImageShares(GenericAPIView[Image]):
    """The projects that an own image is shared with."""

    serializer_class = OwnImageBody
    token_scopes = (Scope.SESSIONS,)

    @extend_schema(request=ShareRequest, responses={201: OwnImageBody})
    def post(self, request: Request, own_image_id: UUID) -> Response:
        """Share the image with the members of one of the user's projects; sharing again changes nothing."""
        image = get_object_or_404(_own_of(request), pk=own_image_id)
        values = values_of(ShareRequest, request.data)
        share_image(user_of(request), image, values["project"], now=timezone.now())
        shown = get_object_or_404(_own_of(request), pk=own_image_id)
        return Response(OwnImageBody(shown).data, status=status.HTTP_201_CREATED)


class OwnImageShare(GenericAPIView[Image]):
    """One project that an own image is shared with."""

    serializer_class = OwnImageBody
    token_scopes = (Scope.SESSIONS,)

    def delete(self, request: Request, own_image_id: UUID, project_id: UUID) -> Response:
        """Stop sharing; sessions that were started from it continue."""
        take_back_image(user_of(request), get_object_or_404(_own_of(request), pk=own_image_id), project_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _own_of(request: Request) -> QuerySet[Image]:
    rows: QuerySet[Image] = Image.objects.own_of(user_of(request)).select_related("owner")
    return rows.prefetch_related("aliases", "shares__project")
