"""Explains why a session waits, and whether a session could start before it is launched."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.status import Status
from backendai.domain.forecasts.launches import forecast_launch
from backendai.domain.forecasts.models import StartForecast
from backendai.domain.planning.explain import Explanation, Verdict, explain
from backendai.domain.planning.preview import preview
from backendai.domain.planning.turns import turn_of
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.fields import DecimalAmounts, MessageValues
from backendai.portal.api.sessions.launch_request import LaunchRequest, spec_asked_for
from backendai.portal.api.sessions.views import OneSessionView
from backendai.scheduler.explaining.suggest import Suggestion
from backendai.scheduler.plan import Reason, Step

VERDICTS = [(verdict.value, verdict.value) for verdict in Verdict]


class ReasonBody(serializers.Serializer[Reason]):
    """A reason with a stable code, a sentence and its numbers."""

    code = serializers.CharField()
    message = serializers.CharField()
    details = serializers.DictField()
    never = serializers.BooleanField(help_text="Waiting does not help.")
    until = serializers.DateTimeField(allow_null=True)


class ConsideredBody(serializers.Serializer[Step]):
    """One consideration of the scheduler, in its order."""

    step = serializers.CharField()
    passed = serializers.BooleanField()
    error_code = serializers.CharField(source="code")
    message = serializers.CharField()
    values = MessageValues("message")


class AheadBody(serializers.Serializer[Any]):
    """A session that is scheduled first."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    priority = serializers.IntegerField()
    created_at = serializers.DateTimeField()


class SuggestionBody(serializers.Serializer[Suggestion]):
    """A change with which the session would start now."""

    resource_group = serializers.CharField(source="group")
    resources = DecimalAmounts(read_only=True, allow_null=True, help_text="Amounts of each kernel; null: unchanged.")
    agents = serializers.ListField(child=serializers.CharField())
    message = serializers.CharField()


class ForecastBody(serializers.ModelSerializer[StartForecast]):
    """When a pending session probably starts: between two times in 8 of 10 cases, by the third in 19 of 20."""

    class Meta:
        model = StartForecast
        fields = ["expected", "early", "late", "latest", "is_reliable", "code", "endless", "updated_at"]
        read_only_fields = fields
        extra_kwargs = {
            "is_reliable": {"help_text": "false: too few forecasts of the resource group have been scored yet."},
            "code": {
                "help_text": "Why nothing can be said: `endless`, `too-far`, `several-agents`, `other`; empty: it can."
            },
        }


class ExplanationBody(serializers.Serializer[Explanation]):
    """What the next pass would do with a session, and why."""

    as_of = serializers.DateTimeField(source="now")
    resource_group = serializers.CharField(source="group")
    verdict = serializers.ChoiceField(choices=VERDICTS)
    message = serializers.CharField()
    reason = ReasonBody(allow_null=True)
    position = serializers.IntegerField(allow_null=True, help_text="From 1, among the pending sessions of the group.")
    waiting = serializers.IntegerField()
    ahead = AheadBody(many=True, help_text="The visible ones of the first twenty sessions in front.")
    ahead_total = serializers.IntegerField()
    agents = serializers.ListField(child=serializers.CharField(), help_text="The agents on which it starts.")
    steps = ConsideredBody(many=True)
    suggestions = SuggestionBody(many=True)


class SessionExplanationBody(ExplanationBody):
    """What the next pass would do with a session, why, and when it probably starts."""

    forecast = ForecastBody(
        allow_null=True, help_text="null: it starts now, waits for something else than room, or is too far back."
    )


class SessionExplanation(OneSessionView):
    """Why a session does not start."""

    queryset = ComputeSession.objects.select_related("resource_group", "image", "project", "start_forecast")
    serializer_class = SessionExplanationBody

    @extend_schema(responses=SessionExplanationBody)
    def get(self, request: Request, session_id: UUID) -> Response:
        """Return what the next pass would do with the session; changes nothing."""
        session = self.get_object()
        with turn_of(self.user.pk):
            explanation = explain(session, self.user, now=timezone.now())
        return _answer(
            explanation, getattr(session, "start_forecast", None) if session.status == Status.PENDING else None
        )


class SessionPreview(GenericAPIView[Any]):
    """Checking a launch without launching."""

    serializer_class = SessionExplanationBody
    token_scopes = (Scope.READ,)  # it changes nothing

    @extend_schema(request=LaunchRequest, responses=SessionExplanationBody)
    def post(self, request: Request) -> Response:
        """Return whether such a session would start now and where, would wait, why and until when, or could never
        start."""
        spec = spec_asked_for(request)
        with turn_of(user_of(request).pk):
            explanation = preview(user_of(request), spec, now=timezone.now())
            forecast = forecast_launch(explanation)
        return _answer(explanation, forecast.start if forecast else None)


def _answer(explanation: Explanation, forecast: StartForecast | None) -> Response:
    told = ForecastBody(forecast).data if forecast else None
    return Response({**ExplanationBody(explanation).data, "forecast": told})
