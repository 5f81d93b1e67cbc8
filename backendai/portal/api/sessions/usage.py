"""The measured usage of a session."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.compute.models.sessions import ComputeSession
from backendai.domain.usage.samples import averages, series
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.sessions.usage_bodies import UsageBody, UsageQuery


class SessionUsage(GenericAPIView[Any]):
    """The measured usage of a session's kernels."""

    serializer_class = UsageBody
    filter_backends: list[Any] = []

    @extend_schema(parameters=[UsageQuery], responses=UsageBody)
    def get(self, request: Request, session_id: UUID) -> Response:
        """Return the usage over a time, as points and as a mean. The mean always covers all kernels."""
        session = get_object_or_404(ComputeSession.objects.visible_to(user_of(request)), pk=session_id)
        query = UsageQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        asked = query.validated_data
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
