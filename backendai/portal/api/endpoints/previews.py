"""Checks an endpoint before it is created."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.serving.previewing import preview_endpoint
from backendai.portal.api.endpoints.bodies import EndpointRequest
from backendai.portal.api.frame.authentication import user_of


class EndpointPreview(GenericAPIView[Any]):
    """Checking an endpoint without creating it."""

    serializer_class = EndpointRequest
    token_scopes = (Scope.SESSIONS,)
    filter_backends: list[Any] = []

    @extend_schema(request=EndpointRequest, responses={200: dict})
    def post(self, request: Request) -> Response:
        """Check an endpoint without creating it; the errors are those of a creation."""
        body = EndpointRequest(data=request.data)
        body.is_valid(raise_exception=True)
        found = preview_endpoint(user_of(request), body.endpoint_spec(), now=timezone.now())
        checked = found.checked
        return Response(
            {
                "project": checked.project.name,
                "resource_group": checked.group.name,
                "image": checked.image.name,
                "each_kernel": checked.slots.to_json(),
                "at_most": found.at_most.to_json(),
                "find_room": found.starts,
                "room": found.room.message,
            }
        )
