"""With whom the user shares a session."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.compute.models import ComputeSession, SessionShare
from backendai.domain.compute.services.launching.sharing import share_session, shares_of, unshare_session
from backendai.domain.compute.status import ShareRight
from backendai.portal.api.frame.paging import OnePage, only_page
from backendai.portal.api.frame.parsing import StrictSerializer, values_of
from backendai.portal.api.sessions.views import OneSessionView


class SessionShareRequest(StrictSerializer):
    """A person or a project, and their right."""

    email = serializers.EmailField(
        required=False, default="", max_length=254, help_text="A person of the owner's domain."
    )
    project = serializers.UUIDField(required=False, default=None, help_text="The ID of a project of the owner.")
    right = serializers.ChoiceField(ShareRight.choices, default=ShareRight.VIEW)


class SessionShareBody(serializers.ModelSerializer[SessionShare]):
    """A person or a project with whom a session is shared."""

    email = serializers.EmailField(source="user.email", default=None, read_only=True, allow_null=True)
    project = serializers.UUIDField(source="project_id", read_only=True, allow_null=True)
    used_by = serializers.EmailField(source="used_by.email", default=None, read_only=True, allow_null=True)

    class Meta:
        model = SessionShare
        fields = ["id", "email", "project", "right", "created_at", "used_by", "used_at"]
        read_only_fields = fields


class SharedSessionView(OneSessionView):
    """The base of the views of the shares of a session, which its owner alone sees."""

    serializer_class = SessionShareBody

    def visible(self, rows: Any) -> QuerySet[ComputeSession]:
        """Return the user's own sessions."""
        found: QuerySet[ComputeSession] = rows.filter(owner=self.user)
        return found


class SessionShares(SharedSessionView):
    """With whom the user's session is shared."""

    pagination_class = OnePage

    @extend_schema(responses=SessionShareBody(many=True))
    def get(self, request: Request, session_id: UUID) -> Response:
        """Return the shares, at most 20."""
        return only_page(self.get_serializer(shares_of(self.get_object()), many=True).data)

    @extend_schema(request=SessionShareRequest, responses={201: SessionShareBody})
    def post(self, request: Request, session_id: UUID) -> Response:
        """Share the session with a person or a project until it ends; again it changes the right."""
        session, values = self.get_object(), values_of(SessionShareRequest, request.data)
        return self.answer(share_session(session, self.user, now=timezone.now(), **values), status.HTTP_201_CREATED)


class SessionShareDetail(SharedSessionView):
    """One share of a session."""

    def delete(self, request: Request, session_id: UUID, share_id: int) -> Response:
        """Stop sharing; what is open by it is closed within seconds."""
        unshare_session(self.get_object(), self.user, share_id)
        return Response(status=status.HTTP_204_NO_CONTENT)
