"""Announcements: everybody reads the current ones, superadmins write them."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.activity.changes import delete_object
from backendai.domain.cluster.models import Announcement
from backendai.domain.cluster.site import current_announcements, write_announcement
from backendai.portal.api.frame.authentication import superadmin_of, user_of
from backendai.portal.api.frame.paging import NewestFirst
from backendai.portal.api.frame.parsing import MomentField, StrictSerializer, values_of

_ALL = OpenApiParameter("all", bool, description="Superadmins: past and future ones too.")


class AnnouncementBody(serializers.ModelSerializer[Announcement]):
    """An announcement at the top of every page."""

    tone = serializers.CharField()

    class Meta:
        model = Announcement
        fields = ["id", "text", "tone", "starts_at", "ends_at"]
        read_only_fields = fields


class AnnouncementRequest(StrictSerializer):
    """An announcement. It starts now by default; in a change, omitted fields stay."""

    text = serializers.CharField(max_length=500, help_text="Plain text; addresses become links.")
    tone = serializers.ChoiceField(choices=Announcement.Tone.choices, required=False)
    starts_at = MomentField(required=False)
    ends_at = MomentField(required=False, allow_null=True, help_text="null: until it is deleted.")


class NewestStart(NewestFirst):
    """Pages as of ``NewestFirst``, by the start."""

    ordering = "-starts_at"


class AnnouncementList(ListAPIView[Announcement]):
    """The announcements of administrators."""

    queryset = Announcement.objects.all()
    serializer_class = AnnouncementBody
    pagination_class = NewestStart
    token_scopes = (Scope.ADMIN,)

    def get_queryset(self) -> QuerySet[Announcement]:
        """Return the current announcements, or for superadmins who ask all."""
        if self.request.query_params.get("all", "") in ("true", "1"):
            superadmin_of(self.request)
            return super().get_queryset()
        return current_announcements(timezone.now())

    @extend_schema(parameters=[_ALL])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return the current announcements, the newest first."""
        return super().get(request, *args, **kwargs)

    @extend_schema(request=AnnouncementRequest, responses={201: AnnouncementBody})
    def post(self, request: Request) -> Response:
        """Write an announcement; superadmins only."""
        actor = superadmin_of(request)
        made = write_announcement(actor.pk, Announcement(), values_of(AnnouncementRequest, request.data))
        return Response(AnnouncementBody(made).data, status=status.HTTP_201_CREATED)


class AnnouncementDetail(GenericAPIView[Announcement]):
    """One announcement; superadmins only."""

    queryset = Announcement.objects.all()
    serializer_class = AnnouncementBody
    lookup_url_kwarg = "announcement_id"
    token_scopes = (Scope.ADMIN,)

    def get_object(self) -> Announcement:
        """Return the announcement in the address. Raises NotFound for other users."""
        superadmin_of(self.request)
        return super().get_object()

    def get(self, request: Request, announcement_id: int) -> Response:
        """Return the announcement."""
        return Response(AnnouncementBody(self.get_object()).data)

    @extend_schema(request=AnnouncementRequest, responses=AnnouncementBody)
    def patch(self, request: Request, announcement_id: int) -> Response:
        """Change the given fields."""
        row = self.get_object()
        write_announcement(user_of(request).pk, row, values_of(AnnouncementRequest, request.data, partial=True))
        return Response(AnnouncementBody(row).data)

    def delete(self, request: Request, announcement_id: int) -> Response:
        """Delete the announcement."""
        delete_object(user_of(request).pk, self.get_object(), "announcement")
        return Response(status=status.HTTP_204_NO_CONTENT)
