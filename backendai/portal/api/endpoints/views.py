"""Inference endpoints: lists, creates, changes, updates, stops and deletes them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.serving.models import DesiredState, Endpoint, Revision, ScalingRecord
from backendai.domain.serving.presentation import EndpointSummary, points_of, shown
from backendai.domain.serving.services.endpoints import (
    change_endpoint,
    create_endpoint,
    retry_now,
    roll_back,
    set_wish,
    update_endpoint,
)
from backendai.portal.api.endpoints.bodies import (
    EndpointBody,
    EndpointChange,
    EndpointRequest,
    ReplicaBody,
    RevisionBody,
    RevisionUpdate,
    RollBackRequest,
    ScalingRecordBody,
    reason_body,
)
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.idempotency import idempotency_key
from backendai.portal.api.frame.paging import ByName, NewestFirst
from backendai.portal.api.frame.parsing import StrictSerializer

KEY = OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER, description="Sent again, it creates nothing.")
_HOUR = timedelta(hours=1)


class EndpointList(ListAPIView[Endpoint]):
    """The visible endpoints; creates one."""

    queryset = Endpoint.objects.none()
    serializer_class = EndpointBody
    pagination_class = ByName
    filter_backends: list[Any] = []
    token_scopes = (Scope.SESSIONS,)

    def get_queryset(self) -> QuerySet[Endpoint]:
        """Return the endpoints that are not deleted."""
        return Endpoint.objects.visible_to(user_of(self.request)).live().order_by()

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return a page of endpoints with their current state."""
        page = self.paginate_queryset(self.get_queryset()) or []
        return self.get_paginated_response(EndpointBody(shown(page, timezone.now()), many=True).data)

    @extend_schema(
        request=EndpointRequest,
        responses={201: EndpointBody},
        parameters=[
            OpenApiParameter(
                "Idempotency-Key", str, OpenApiParameter.HEADER, description="Sent again, it creates nothing."
            )
        ],
    )
    def post(self, request: Request) -> Response:
        """Create an endpoint, or return the one that was created under the same idempotency key."""
        body = _checked(EndpointRequest, request)
        made = create_endpoint(user_of(request), body.endpoint_spec(), idempotency_key=idempotency_key(request))
        return Response(_body(made), status=status.HTTP_201_CREATED)


class EndpointDetail(GenericAPIView[Endpoint]):
    """One endpoint."""

    serializer_class = EndpointBody
    token_scopes = (Scope.SESSIONS,)
    filter_backends: list[Any] = []

    def get(self, request: Request, endpoint_id: UUID) -> Response:
        """Return the endpoint with its current state."""
        return Response(_body(_endpoint(request, endpoint_id)))

    @extend_schema(request=EndpointChange, responses=EndpointBody)
    def patch(self, request: Request, endpoint_id: UUID) -> Response:
        """Change limits, number of replicas or access of the endpoint."""
        endpoint = _endpoint(request, endpoint_id)
        body = _checked(EndpointChange, request)
        change_endpoint(endpoint, user_of(request), **body.validated_data)
        return Response(_body(endpoint))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, endpoint_id: UUID) -> Response:
        """Delete the endpoint; its replicas end when their open requests are answered."""
        set_wish(_endpoint(request, endpoint_id), user_of(request), DesiredState.DELETED)
        return Response(status=status.HTTP_204_NO_CONTENT)


class EndpointStart(GenericAPIView[Endpoint]):
    """Starting a stopped endpoint."""

    serializer_class = EndpointBody
    token_scopes = (Scope.SESSIONS,)

    @extend_schema(request=None, responses=EndpointBody)
    def post(self, request: Request, endpoint_id: UUID) -> Response:
        """Start the endpoint."""
        endpoint = _endpoint(request, endpoint_id)
        set_wish(endpoint, user_of(request), DesiredState.RUN)
        return Response(_body(endpoint))


class EndpointStop(GenericAPIView[Endpoint]):
    """Stopping an endpoint."""

    serializer_class = EndpointBody
    token_scopes = (Scope.SESSIONS,)

    @extend_schema(request=None, responses=EndpointBody)
    def post(self, request: Request, endpoint_id: UUID) -> Response:
        """Stop the endpoint: it keeps its address, and its replicas end."""
        endpoint = _endpoint(request, endpoint_id)
        set_wish(endpoint, user_of(request), DesiredState.STOPPED)
        return Response(_body(endpoint))


class EndpointRetry(GenericAPIView[Endpoint]):
    """Retrying failed starts of an endpoint."""

    serializer_class = EndpointBody
    token_scopes = (Scope.SESSIONS,)

    @extend_schema(request=None, responses=EndpointBody)
    def post(self, request: Request, endpoint_id: UUID) -> Response:
        """Start a replica now, without the pause after a failed start."""
        endpoint = _endpoint(request, endpoint_id)
        retry_now(endpoint, user_of(request))
        return Response(_body(endpoint))


class EndpointRevisions(ListAPIView[Revision]):
    """The revisions of an endpoint; creates one."""

    queryset = Revision.objects.none()
    serializer_class = RevisionBody
    pagination_class = NewestFirst
    filter_backends: list[Any] = []
    token_scopes = (Scope.SESSIONS,)

    def get_queryset(self) -> QuerySet[Revision]:
        """Return the revisions of a visible endpoint."""
        if getattr(self, "swagger_fake_view", False):
            return Revision.objects.none()
        return _endpoint(self.request, self.kwargs["endpoint_id"]).revisions.select_related("image").order_by()

    @extend_schema(request=RevisionUpdate, responses={201: RevisionBody})
    def post(self, request: Request, endpoint_id: UUID) -> Response:
        """Create a new revision; it replaces the current one step by step, and is rolled back if it fails."""
        endpoint = _endpoint(request, endpoint_id)
        body = _checked(RevisionUpdate, request)
        gap = body.validated_data["allow_gap"]
        revision = update_endpoint(endpoint, user_of(request), body.spec(), allow_gap=gap)
        return Response(RevisionBody(revision).data, status=status.HTTP_201_CREATED)


class EndpointRollBack(GenericAPIView[Endpoint]):
    """Returning to an earlier revision."""

    serializer_class = EndpointBody
    token_scopes = (Scope.SESSIONS,)

    @extend_schema(request=RollBackRequest, responses=EndpointBody)
    def post(self, request: Request, endpoint_id: UUID) -> Response:
        """Replace the current revision with an earlier one."""
        endpoint = _endpoint(request, endpoint_id)
        body = _checked(RollBackRequest, request)
        roll_back(endpoint, user_of(request), body.validated_data["revision"])
        return Response(_body(endpoint))


class EndpointReplicas(GenericAPIView[Any]):
    """The replicas of an endpoint."""

    serializer_class = ReplicaBody
    filter_backends: list[Any] = []

    @extend_schema(responses=ReplicaBody(many=True))
    def get(self, request: Request, endpoint_id: UUID) -> Response:
        """Return the replicas that have not ended; at most 100."""
        return Response(ReplicaBody(_shown(_endpoint(request, endpoint_id)).replicas, many=True).data)


class EndpointHistory(ListAPIView[ScalingRecord]):
    """The scaling decisions of an endpoint."""

    queryset = ScalingRecord.objects.none()
    serializer_class = ScalingRecordBody
    pagination_class = NewestFirst
    filter_backends: list[Any] = []

    def get_queryset(self) -> QuerySet[ScalingRecord]:
        """Return the scaling decisions about a visible endpoint."""
        if getattr(self, "swagger_fake_view", False):
            return ScalingRecord.objects.none()
        return _endpoint(self.request, self.kwargs["endpoint_id"]).records.order_by()


class EndpointExplanation(GenericAPIView[Any]):
    """The reason for an endpoint's number of replicas."""

    serializer_class = StrictSerializer
    filter_backends: list[Any] = []

    @extend_schema(responses={200: dict})
    def get(self, request: Request, endpoint_id: UUID) -> Response:
        """Return the decision that the platform would make now; changes nothing."""
        one = _shown(_endpoint(request, endpoint_id))
        scale, rollout = one.decision.scale, one.decision.rollout
        return Response(
            {
                "health": one.health,
                "desired": scale.desired,
                "scaling": reason_body(scale.reason),
                "replacing": reason_body(rollout.reason) if rollout.reason else None,
                "starts": sum(number for _, number in rollout.starts),
                "drains": len(rollout.drains),
            }
        )


class EndpointMetrics(GenericAPIView[Any]):
    """Requests and responses of an endpoint."""

    serializer_class = StrictSerializer
    filter_backends: list[Any] = []

    @extend_schema(responses={200: dict})
    def get(self, request: Request, endpoint_id: UUID) -> Response:
        """Return the last hour: requests and errors per second, open and queued requests, p95 in seconds."""
        now = timezone.now()
        points = points_of(_endpoint(request, endpoint_id), now - _HOUR, now)
        names = ("at", "requests", "open", "queued", "errors", "p95")
        return Response({"results": [{name: getattr(one, name) for name in names} for one in points]})


def _endpoint(request: Request, endpoint_id: UUID) -> Endpoint:
    visible = Endpoint.objects.visible_to(user_of(request)).live().select_related("resource_group", "owner")
    endpoint: Endpoint = get_object_or_404(visible, pk=endpoint_id)
    return endpoint


def _shown(endpoint: Endpoint) -> EndpointSummary:
    return shown([endpoint], timezone.now())[0]


def _body(endpoint: Endpoint) -> Any:
    return EndpointBody(_shown(endpoint)).data


def _checked(kind: type[Any], request: Request) -> Any:
    body = kind(data=request.data)
    body.is_valid(raise_exception=True)
    return body
