"""The user's own limits."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.compute.services.requests.check import project_of
from backendai.domain.planning.amounts.allowances import own_limits
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.parsing import BoundedSerializer
from backendai.portal.api.people.limit_bodies import OwnLimitsBody, limits_body


class LimitsQuery(BoundedSerializer):
    """The project of the launch."""

    project = serializers.CharField(
        max_length=64, default="", allow_blank=True, help_text="ID or name; default: the project of launches."
    )


class OwnLimits(GenericAPIView[Any]):
    """The user's limits, usage and remaining amounts."""

    serializer_class = OwnLimitsBody
    filter_backends: list[Any] = []

    @extend_schema(parameters=[LimitsQuery], responses=OwnLimitsBody)
    def get(self, request: Request) -> Response:
        """Return limits and usage of key pair, user, project and domain, and the remaining amounts."""
        query = LimitsQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        user = user_of(request)
        return Response(limits_body(own_limits(user, project_of(user, query.validated_data["project"]))))
