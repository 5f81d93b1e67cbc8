"""Explains why a session waits, and whether a session could start before it is launched."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.compute.models import ComputeSession
from backendai.domain.planning.explain import explain
from backendai.domain.planning.preview import preview
from backendai.domain.planning.turns import turn_of
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.templated import spec_asked_for
from backendai.portal.api.sessions.explanation_bodies import ExplanationBody
from backendai.portal.api.sessions.launch_bodies import LaunchRequest


class SessionExplanation(GenericAPIView[Any]):
    """Why a session does not start."""

    serializer_class = ExplanationBody
    filter_backends: list[Any] = []

    @extend_schema(responses=ExplanationBody)
    def get(self, request: Request, session_id: UUID) -> Response:
        """Return what the next pass would do with the session; changes nothing."""
        visible = ComputeSession.objects.visible_to(user_of(request)).select_related(
            "resource_group", "image", "project"
        )
        session = get_object_or_404(visible, pk=session_id)
        with turn_of(user_of(request).pk):
            explanation = explain(session, user_of(request), now=timezone.now())
        return Response(self.get_serializer(explanation).data)


class SessionPreview(GenericAPIView[Any]):
    """Checking a launch without launching."""

    serializer_class = ExplanationBody
    token_scopes = (Scope.READ,)  # it changes nothing

    @extend_schema(request=LaunchRequest, responses=ExplanationBody)
    def post(self, request: Request) -> Response:
        """Return whether such a session would start now and where, would wait and why, or could never start."""
        spec = spec_asked_for(request)
        with turn_of(user_of(request).pk):
            explanation = preview(user_of(request), spec, now=timezone.now())
        return Response(self.get_serializer(explanation).data)
