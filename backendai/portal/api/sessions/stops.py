"""Stops sessions, whose homes are stored, and resumes them."""

from __future__ import annotations

from uuid import UUID

from django.conf import settings
from django.http import Http404
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.compute.models import ComputeSession, StopSchedule
from backendai.domain.compute.services.life.resuming import resume_session
from backendai.domain.compute.services.life.stop_schedules import delete_schedule, set_schedule
from backendai.domain.compute.services.life.stopping import stop_session
from backendai.portal.api.cluster.jobs import JobBody
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.parsing import StrictSerializer, values_of
from backendai.portal.api.sessions.views import SessionBody, shown_sessions
from backendai.scheduler.stop_times import DailyTimes


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


class StopScheduleRequest(StrictSerializer):
    """When a session is stopped and resumed."""

    stop_at = serializers.TimeField(help_text="Such as 20:00.")
    resume_at = serializers.TimeField(
        required=False, default=None, allow_null=True, help_text="null: somebody resumes it by hand."
    )
    is_weekdays = serializers.BooleanField(required=False, default=False, help_text="From Monday to Friday only.")
    time_zone = serializers.CharField(
        required=False, max_length=64, help_text="Such as Europe/Berlin; default: that of the site."
    )


class StopScheduleBody(serializers.ModelSerializer[StopSchedule]):
    """When a session is stopped and resumed, by the clock of its time zone."""

    class Meta:
        model = StopSchedule
        fields = ["stop_at", "resume_at", "is_weekdays", "time_zone"]
        read_only_fields = fields


class SessionStopSchedule(GenericAPIView[StopSchedule]):
    """The schedule that stops and resumes a session."""

    queryset = StopSchedule.objects.none()
    serializer_class = StopScheduleBody
    token_scopes = (Scope.SESSIONS,)

    @extend_schema(responses=StopScheduleBody)
    def get(self, request: Request, session_id: UUID) -> Response:
        """Return the schedule; 404 if it has none."""
        return Response(StopScheduleBody(get_object_or_404(StopSchedule, session=self._session(session_id))).data)

    @extend_schema(request=StopScheduleRequest, responses=StopScheduleBody)
    def put(self, request: Request, session_id: UUID) -> Response:
        """Set the schedule; 409 ``kind-not-stopped``, ``too-many-stopped`` where policies allow no stopped session."""
        session, values = self._session(session_id), values_of(StopScheduleRequest, request.data)
        times = DailyTimes(**{"time_zone": settings.TIME_ZONE} | values)
        made = set_schedule(user_of(request), session, times, now=timezone.now())
        return Response(StopScheduleBody(made).data)

    def delete(self, request: Request, session_id: UUID) -> Response:
        """Delete the schedule; 404 if it has none."""
        if not delete_schedule(user_of(request), self._session(session_id)):
            raise Http404
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _session(self, session_id: UUID) -> ComputeSession:
        return get_object_or_404(ComputeSession.objects.visible_to(user_of(self.request)), pk=session_id)


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
