"""Stops sessions, whose homes are stored, and resumes them."""

from __future__ import annotations

from uuid import UUID

from django.conf import settings
from django.http import Http404
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.compute.models import StopSchedule
from backendai.domain.compute.services.life.resuming import resume_session
from backendai.domain.compute.services.life.stop_schedules import delete_schedule, set_schedule
from backendai.domain.compute.services.life.stopping import stop_session
from backendai.portal.api.cluster.jobs import JobBody
from backendai.portal.api.frame.parsing import StrictSerializer, values_of
from backendai.portal.api.sessions.views import OneSessionView, SessionBody
from backendai.scheduler.stop_times import DailyTimes


class SessionStop(OneSessionView):
    """Stopping a session."""

    serializer_class = JobBody

    @extend_schema(request=None, responses={202: JobBody})
    def post(self, request: Request, session_id: UUID) -> Response:
        """Store the session's homes, then free its resources. Returns the job; to cancel it lets the session go on."""
        return self.answer(stop_session(self.user, self.get_object(), now=timezone.now()), status.HTTP_202_ACCEPTED)


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


class SessionStopSchedule(OneSessionView):
    """The schedule that stops and resumes a session."""

    serializer_class = StopScheduleBody

    @extend_schema(responses=StopScheduleBody)
    def get(self, request: Request, session_id: UUID) -> Response:
        """Return the schedule; 404 if it has none."""
        return self.answer(get_object_or_404(StopSchedule, session=self.get_object()))

    @extend_schema(request=StopScheduleRequest, responses=StopScheduleBody)
    def put(self, request: Request, session_id: UUID) -> Response:
        """Set the schedule; 409 ``kind-not-stopped``, ``too-many-stopped`` where policies allow no stopped session."""
        session, values = self.get_object(), values_of(StopScheduleRequest, request.data)
        times = DailyTimes(**{"time_zone": settings.TIME_ZONE} | values)
        return self.answer(set_schedule(self.user, session, times, now=timezone.now()))

    def delete(self, request: Request, session_id: UUID) -> Response:
        """Delete the schedule; 404 if it has none."""
        if not delete_schedule(self.user, self.get_object()):
            raise Http404
        return Response(status=status.HTTP_204_NO_CONTENT)


class SessionResume(OneSessionView):
    """Resuming a stopped session."""

    @extend_schema(request=None, responses={202: SessionBody})
    def post(self, request: Request, session_id: UUID) -> Response:
        """Queue the stopped session. It starts with its stored homes, on any agent that reaches them."""
        resume_session(self.user, self.get_object(), now=timezone.now())
        return self.answer_now(status.HTTP_202_ACCEPTED)
