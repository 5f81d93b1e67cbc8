"""The name, the labels and the note of a session."""

from __future__ import annotations

from uuid import UUID

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.core.labels import LONGEST_NOTE
from backendai.domain.accounts.scopes import Scope
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.launching.renaming import label_session, rename_session
from backendai.domain.compute.spec import LONGEST_NAME_READ, NAME_RULE
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.parsing import StrictSerializer, values_of
from backendai.portal.api.sessions.views import SessionBody, shown_sessions


class RenameRequest(StrictSerializer):
    """The new name of a session."""

    name = serializers.CharField(max_length=LONGEST_NAME_READ, help_text=NAME_RULE)


class LabelsRequest(StrictSerializer):
    """Changes of the labels and the note of a session; omitted ones stay."""

    labels = serializers.DictField(
        child=serializers.CharField(allow_null=True, allow_blank=True, max_length=255),
        required=False,
        help_text="Values by key; null removes a label.",
    )
    note = serializers.CharField(required=False, allow_blank=True, max_length=2 * LONGEST_NOTE)


class SessionName(GenericAPIView[ComputeSession]):
    """The name of a session."""

    serializer_class = SessionBody
    token_scopes = (Scope.SESSIONS,)

    @extend_schema(request=RenameRequest, responses=SessionBody)
    def post(self, request: Request, session_id: UUID) -> Response:
        """Rename the session; 409 if it has ended, or another live session of its owner has the name."""
        visible = ComputeSession.objects.visible_to(user_of(request)).select_related("owner")
        session = get_object_or_404(visible, pk=session_id)
        rename_session(session, user_of(request), values_of(RenameRequest, request.data)["name"])
        return Response(self.get_serializer(get_object_or_404(shown_sessions(user_of(request)), pk=session_id)).data)


class SessionLabels(GenericAPIView[ComputeSession]):
    """The labels and the note of a session."""

    serializer_class = SessionBody
    token_scopes = (Scope.SESSIONS,)

    @extend_schema(request=LabelsRequest, responses=SessionBody)
    def post(self, request: Request, session_id: UUID) -> Response:
        """Change labels and note, also after the end. Other labels stay."""
        visible = ComputeSession.objects.visible_to(user_of(request)).select_related("owner", "project")
        session = get_object_or_404(visible, pk=session_id)
        label_session(session, user_of(request), **values_of(LabelsRequest, request.data))
        return Response(self.get_serializer(get_object_or_404(shown_sessions(user_of(request)), pk=session_id)).data)
