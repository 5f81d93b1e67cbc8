"""One's own limits."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.api.authentication import asker
from backendai.api.limit_bodies import OwnLimitsBody, limits_body
from backendai.compute.services.check import project_of
from backendai.planning.allowances import own_limits


class LimitsQuery(serializers.Serializer[Any]):
    """Where the launch would be."""

    project = serializers.CharField(
        max_length=64, default="", allow_blank=True, help_text="Its id or name; left out: the one that launches go to."
    )


class OwnLimits(GenericAPIView[Any]):
    """What one may hold, holds, and may still take."""

    serializer_class = OwnLimitsBody
    filter_backends: list[Any] = []

    @extend_schema(parameters=[LimitsQuery], responses=OwnLimitsBody)
    def get(self, request: Request) -> Response:
        """Return the limits and the use of one's key pair, oneself, the project and its domain, and what the strictest
        of them leaves."""
        query = LimitsQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        user = asker(request)
        return Response(limits_body(own_limits(user, project_of(user, query.validated_data["project"]))))
