"""The user's recent launches by the form."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.compute.models import LaunchRecord
from backendai.domain.compute.services.launching.recent import (
    delete_launch,
    pin_launch,
    recent_launch,
    recent_launches,
    rename_launch,
)
from backendai.domain.compute.spec import LONGEST_NAME_READ, NAME_RULE
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.paging import OnePage, only_page
from backendai.portal.api.frame.parsing import StrictSerializer, values_of


class RecentLaunchBody(serializers.ModelSerializer[LaunchRecord]):
    """A recent launch in the browser."""

    parameters = serializers.JSONField(
        source="document",
        help_text="The values that differ from the defaults. Variables that look like secrets are null.",
    )

    class Meta:
        model = LaunchRecord
        fields = ["id", "name", "is_pinned", "parameters", "created_at"]
        read_only_fields = fields


class RecentLaunchChange(StrictSerializer):
    """Changes of a recent launch; omitted fields stay unchanged."""

    name = serializers.CharField(required=False, max_length=LONGEST_NAME_READ, help_text=NAME_RULE)
    is_pinned = serializers.BooleanField(required=False)


class RecentLaunchList(GenericAPIView[LaunchRecord]):
    """The user's recent launches, on one page, as they are few."""

    queryset = LaunchRecord.objects.none()
    serializer_class = RecentLaunchBody
    pagination_class = OnePage

    @extend_schema(responses=RecentLaunchBody(many=True))
    def get(self, request: Request) -> Response:
        """Return the pinned launches first, then the newest."""
        return only_page(RecentLaunchBody(recent_launches(user_of(request)), many=True).data)


class RecentLaunchDetail(GenericAPIView[Any]):
    """One recent launch."""

    serializer_class = RecentLaunchBody
    token_scopes = (Scope.ACCOUNT,)

    @extend_schema(request=RecentLaunchChange, responses=RecentLaunchBody)
    def patch(self, request: Request, recent_launch_id: UUID) -> Response:
        """Rename the entry, pin or unpin it."""
        user = user_of(request)
        record = recent_launch(user, recent_launch_id)
        values = values_of(RecentLaunchChange, request.data)
        with transaction.atomic():
            if "name" in values:
                rename_launch(user, record, values["name"])
            if "is_pinned" in values:
                pin_launch(user, record, values["is_pinned"])
        return Response(RecentLaunchBody(record).data)

    def delete(self, request: Request, recent_launch_id: UUID) -> Response:
        """Delete the entry; sessions launched from it continue."""
        user = user_of(request)
        delete_launch(user, recent_launch(user, recent_launch_id))
        return Response(status=status.HTTP_204_NO_CONTENT)
