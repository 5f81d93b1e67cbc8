"""Inference endpoints: lists, creates, changes, updates, stops and deletes them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from django.db.models import Model
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.serving.models import DesiredState, Endpoint, Revision, ScalingRecord
from backendai.domain.serving.presentation import EndpointSummary, points_of, shown
from backendai.domain.serving.previewing import preview_endpoint
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
    EndpointRequest,
    EndpointSettings,
    ReplicaBody,
    RevisionBody,
    RevisionUpdate,
    RollBackRequest,
    ScalingRecordBody,
    reason_body,
)
from backendai.portal.api.frame.paging import ByName, NewestFirst, OnePage, only_page
from backendai.portal.api.frame.parsing import StrictSerializer, body_of, values_of
from backendai.portal.api.frame.versions import VersionedView
from backendai.portal.api.frame.views import PartView, ResourceView

_HOUR = timedelta(hours=1)
M = TypeVar("M", bound=Model)


class EndpointView(ResourceView[Endpoint]):
    """The base of the views of endpoints that are not deleted."""

    queryset = Endpoint.objects.live().select_related("resource_group", "owner")
    serializer_class: type[Any] = EndpointBody
    lookup_url_kwarg = "endpoint_id"
    token_scopes = (Scope.SESSIONS,)

    def summary(self) -> EndpointSummary:
        """Return the endpoint in the address with its current state."""
        return shown([self.get_object()], timezone.now())[0]


class EndpointPartView(PartView[M]):
    """The base of the views of rows that belong to an endpoint."""

    owner_view = EndpointView
    owner_field = "endpoint"
    token_scopes = (Scope.SESSIONS,)


class EndpointList(EndpointView, ListAPIView[Endpoint]):
    """The visible endpoints; creates one."""

    queryset = Endpoint.objects.live().order_by()
    pagination_class = ByName

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return a page of endpoints with their current state."""
        page = self.paginate_queryset(self.get_queryset()) or []
        return self.get_paginated_response(EndpointBody(shown(page, timezone.now()), many=True).data)

    @extend_schema(request=EndpointRequest, responses={201: EndpointBody})
    def post(self, request: Request) -> Response:
        """Create an endpoint."""
        body = body_of(EndpointRequest, request.data)
        made = create_endpoint(self.user, body.endpoint_spec())
        return Response(_body(made), status=status.HTTP_201_CREATED)


class EndpointDetail(VersionedView, EndpointView):
    """One endpoint."""

    versioned = (Endpoint, "pk")

    def get(self, request: Request, endpoint_id: UUID) -> Response:
        """Return the endpoint with its current state."""
        return Response(_body(self.get_object()))

    @extend_schema(request=EndpointSettings, responses=EndpointBody)
    def patch(self, request: Request, endpoint_id: UUID) -> Response:
        """Change limits, number of replicas or access of the endpoint."""
        endpoint = self.get_object()
        change_endpoint(endpoint, self.user, **values_of(EndpointSettings, request.data, partial=True))
        return Response(_body(endpoint))

    def delete(self, request: Request, endpoint_id: UUID) -> Response:
        """Delete the endpoint; its replicas end when their open requests are answered."""
        set_wish(self.get_object(), self.user, DesiredState.DELETED)
        return Response(status=status.HTTP_204_NO_CONTENT)


class EndpointStart(EndpointView):
    """Starting a stopped endpoint."""

    @extend_schema(request=None, responses=EndpointBody)
    def post(self, request: Request, endpoint_id: UUID) -> Response:
        """Start the endpoint."""
        endpoint = self.get_object()
        set_wish(endpoint, self.user, DesiredState.RUN)
        return Response(_body(endpoint))


class EndpointStop(EndpointView):
    """Stopping an endpoint."""

    @extend_schema(request=None, responses=EndpointBody)
    def post(self, request: Request, endpoint_id: UUID) -> Response:
        """Stop the endpoint: it keeps its address, and its replicas end."""
        endpoint = self.get_object()
        set_wish(endpoint, self.user, DesiredState.STOPPED)
        return Response(_body(endpoint))


class EndpointRetry(EndpointView):
    """Retrying failed starts of an endpoint."""

    @extend_schema(request=None, responses=EndpointBody)
    def post(self, request: Request, endpoint_id: UUID) -> Response:
        """Start a replica now, without the pause after a failed start."""
        endpoint = self.get_object()
        retry_now(endpoint, self.user)
        return Response(_body(endpoint))


class EndpointRevisions(EndpointPartView[Revision], ListAPIView[Revision]):
    """The revisions of an endpoint; creates one."""

    queryset = Revision.objects.select_related("image")
    serializer_class = RevisionBody
    pagination_class = NewestFirst

    @extend_schema(request=RevisionUpdate, responses={201: RevisionBody})
    def post(self, request: Request, endpoint_id: UUID) -> Response:
        """Create a new revision; it replaces the current one step by step, and is rolled back if it fails."""
        endpoint, body = self.owner(), body_of(RevisionUpdate, request.data)
        gap = body.validated_data["allow_gap"]
        revision = update_endpoint(endpoint, self.user, body.spec(), allow_gap=gap)
        return self.answer(revision, status.HTTP_201_CREATED)


class EndpointRollBack(EndpointView):
    """Returning to an earlier revision."""

    @extend_schema(request=RollBackRequest, responses=EndpointBody)
    def post(self, request: Request, endpoint_id: UUID) -> Response:
        """Replace the current revision with an earlier one."""
        endpoint = self.get_object()
        roll_back(endpoint, self.user, values_of(RollBackRequest, request.data)["revision"])
        return Response(_body(endpoint))


class EndpointReplicas(EndpointView):
    """The replicas of an endpoint."""

    serializer_class = ReplicaBody
    pagination_class = OnePage

    @extend_schema(responses=ReplicaBody(many=True))
    def get(self, request: Request, endpoint_id: UUID) -> Response:
        """Return the replicas that have not ended; at most 100."""
        return only_page(ReplicaBody(self.summary().replicas, many=True).data)


class EndpointHistory(EndpointPartView[ScalingRecord], ListAPIView[ScalingRecord]):
    """The scaling decisions of an endpoint."""

    queryset = ScalingRecord.objects.all()
    serializer_class = ScalingRecordBody
    pagination_class = NewestFirst


class EndpointExplanation(EndpointView):
    """The reason for an endpoint's number of replicas."""

    serializer_class = StrictSerializer

    @extend_schema(responses={200: dict})
    def get(self, request: Request, endpoint_id: UUID) -> Response:
        """Return the decision that the platform would make now; changes nothing."""
        one = self.summary()
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


class EndpointMetrics(EndpointView):
    """Requests and responses of an endpoint."""

    serializer_class = StrictSerializer

    @extend_schema(responses={200: dict})
    def get(self, request: Request, endpoint_id: UUID) -> Response:
        """Return the last hour: requests and errors per second, open and queued requests, p95 in seconds."""
        now = timezone.now()
        points = points_of(self.get_object(), now - _HOUR, now)
        names = ("at", "requests", "open", "queued", "errors", "p95")
        return Response({"results": [{name: getattr(one, name) for name in names} for one in points]})


class EndpointPreview(EndpointView):
    """Checking an endpoint without creating it."""

    serializer_class = EndpointRequest

    @extend_schema(request=EndpointRequest, responses={200: dict})
    def post(self, request: Request) -> Response:
        """Check an endpoint without creating it; the errors are those of a creation."""
        body = body_of(EndpointRequest, request.data)
        found = preview_endpoint(self.user, body.endpoint_spec(), now=timezone.now())
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


def _body(endpoint: Endpoint) -> Any:
    return EndpointBody(shown([endpoint], timezone.now())[0]).data
