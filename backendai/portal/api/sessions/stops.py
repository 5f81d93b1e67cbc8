"""Stops sessions, whose homes are stored, and resumes them."""

from __future__ import annotations

from uuid import UUID

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.life.resuming import resume_session
from backendai.domain.compute.services.life.stopping import stop_session
from backendai.portal.api.cluster.jobs import JobBody
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.sessions.views import SessionBody, shown_sessions


class SessionStop(GenericAPIView[BackgroundJob]):
    """Stopping a session."""

    serializer_class = JobBody
    token_scopes = (Scope.SESSIONS,)

    @extend_schema(request=None, responses={202: JobBody})
    def post(self, request: Request, session_id: UUID) -> Response:
        """Store the session's homes, then free its resources. Returns the job; to cancel it lets the session go on."""
        session = get_object_or_404(ComputeSession.objects.visible_to(user_of(request)), pk=session_id)
        job = stop_session(user_of(request), session, now=timezone.now())
        return Response(JobBody(job).data, status=status.HTTP_202_ACCEPTED)


class SessionResume(GenericAPIView[ComputeSession]):
    """Resuming a stopped session."""

    serializer_class = SessionBody
    token_scopes = (Scope.SESSIONS,)

    @extend_schema(request=None, responses={202: SessionBody})
    def post(self, request: Request, session_id: UUID) -> Response:
        """Queue the stopped session. It starts with its stored homes, on any agent that reaches them."""
        session = get_object_or_404(ComputeSession.objects.visible_to(user_of(request)), pk=session_id)
        resume_session(user_of(request), session, now=timezone.now())
        shown = shown_sessions(user_of(request)).get(pk=session.pk)
        return Response(self.get_serializer(shown).data, status=status.HTTP_202_ACCEPTED)
