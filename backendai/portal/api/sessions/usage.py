"""The measured usage of a session."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.compute.status import ShareRight
from backendai.domain.usage.samples import MOST_POINTS, averages, series
from backendai.portal.api.frame.parsing import BoundedSerializer, MomentField, values_of
from backendai.portal.api.sessions.views import OneSessionView

HOUR = 3600
LONGEST = 366 * 24 * HOUR


class UsageQuery(BoundedSerializer):
    """The time range, the number of points, and the kernel."""

    seconds = serializers.IntegerField(
        default=HOUR, min_value=60, max_value=LONGEST, help_text="Length of the time range; default: an hour."
    )
    until = MomentField(required=False, help_text="End of the time range; default: now, or the session's end.")
    points = serializers.IntegerField(default=60, min_value=1, max_value=MOST_POINTS)
    kernel = serializers.UUIDField(required=False, help_text="One kernel only; default: all together.")

    def validate_seconds(self, value: int) -> timedelta:
        """Return the range as a timedelta."""
        return timedelta(seconds=value)


class UsageAveragesBody(serializers.Serializer[Any]):
    """The mean usage over the whole time."""

    slots = serializers.DictField(
        child=serializers.FloatField(allow_null=True),
        help_text="The used part of each slot, 0 to 1; null unless measured for every kernel.",
    )
    covered_seconds = serializers.FloatField(help_text="Measured seconds.")


class UsagePointBody(serializers.Serializer[Any]):
    """The mean usage over one step."""

    at = serializers.DateTimeField(help_text="Start of the step.")
    used = serializers.DictField(child=serializers.FloatField(), help_text="By slot: cores, bytes, devices.")
    memory = serializers.DictField(child=serializers.FloatField(), help_text="Bytes of accelerators, by slot.")
    rates = serializers.DictField(
        child=serializers.FloatField(), help_text="Bytes per second: net_rx, net_tx, io_read, io_write."
    )


class UsageBody(serializers.Serializer[Any]):
    """The measured usage of a session. Steps without measurements have no point."""

    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    step = serializers.FloatField(help_text="Seconds from point to point.")
    held = serializers.DictField(child=serializers.FloatField(), help_text="The allocated amounts, in the same units.")
    averages = UsageAveragesBody()
    points = UsagePointBody(many=True)


class SessionUsage(OneSessionView):
    """The measured usage of a session's kernels."""

    serializer_class = UsageBody
    right = ShareRight.VIEW

    @extend_schema(parameters=[UsageQuery], responses=UsageBody)
    def get(self, request: Request, session_id: UUID) -> Response:
        """Return the usage over a time, as points and as a mean. The mean always covers all kernels."""
        session, asked = self.get_object(), values_of(UsageQuery, request.query_params)
        kernel_id = asked.get("kernel")
        if kernel_id is not None:
            get_object_or_404(session.kernels.all(), pk=kernel_id)
        until = asked.get("until") or session.ended_at or timezone.now()
        since = until - asked["seconds"]
        told = series(session.pk, since, until, asked["points"], kernel_id=kernel_id)
        body = {
            "since": since,
            "until": until,
            "step": told.step,
            "held": told.held,
            "averages": averages([session.pk], since, until)[session.pk],
            "points": told.points,
        }
        return Response(self.get_serializer(body).data)
