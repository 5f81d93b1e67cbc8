"""The name, the labels and the note of a session."""

from __future__ import annotations

from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.core.labels import LONGEST_NOTE
from backendai.domain.compute.services.launching.renaming import label_session, rename_session
from backendai.domain.compute.spec import LONGEST_NAME_READ, NAME_RULE
from backendai.portal.api.frame.parsing import StrictSerializer, values_of
from backendai.portal.api.sessions.views import OneSessionView, SessionBody


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


class SessionName(OneSessionView):
    """The name of a session."""

    @extend_schema(request=RenameRequest, responses=SessionBody)
    def post(self, request: Request, session_id: UUID) -> Response:
        """Rename the session; 409 if it has ended, or another live session of its owner has the name."""
        rename_session(self.get_object(), self.user, values_of(RenameRequest, request.data)["name"])
        return self.answer_now()


class SessionLabels(OneSessionView):
    """The labels and the note of a session."""

    @extend_schema(request=LabelsRequest, responses=SessionBody)
    def post(self, request: Request, session_id: UUID) -> Response:
        """Change labels and note, also after the end. Other labels stay."""
        label_session(self.get_object(), self.user, **values_of(LabelsRequest, request.data))
        return self.answer_now()
