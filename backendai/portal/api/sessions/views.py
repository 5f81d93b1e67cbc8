"""Compute sessions: lists, launches, changes and terminates them, and shows their history."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.filters import OrderingFilter
from rest_framework.generics import GenericAPIView, ListAPIView, RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.compute.models.sessions import ComputeSession, Kernel, SchedulingRecord
from backendai.domain.compute.services.launching.create import launch_session
from backendai.domain.compute.services.launching.priorities import set_priority
from backendai.domain.compute.services.launching.renaming import rename_session
from backendai.domain.compute.services.life.end_times import set_end
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.services.life.ending_many import terminate_sessions
from backendai.domain.pipelines.services.single import launch_with_retries
from backendai.portal.api.frame.authentication import signing_pair, user_of
from backendai.portal.api.frame.filters import FiltersAskedFor, HistoryFilter, SessionFilter
from backendai.portal.api.frame.idempotency import idempotency_key
from backendai.portal.api.frame.paging import NewestFirst
from backendai.portal.api.frame.templated import launch_asked_for
from backendai.portal.api.sessions.bodies import (
    EndedManyBody,
    EndTimeRequest,
    KernelBody,
    PriorityRequest,
    RecordBody,
    RenameRequest,
    SessionBody,
    TerminateManyRequest,
    TerminateRequest,
)
from backendai.portal.api.sessions.launch_bodies import LaunchRequest
from backendai.portal.api.sessions.queries import shown_at_launch, shown_kernels, shown_sessions


class SessionList(ListAPIView[ComputeSession]):
    """The visible sessions; launches one."""

    queryset = ComputeSession.objects.none()
    serializer_class = SessionBody
    pagination_class = NewestFirst
    filterset_class = SessionFilter
    filter_backends = [FiltersAskedFor]
    token_scopes = (Scope.SESSIONS,)
    launches = True

    def get_queryset(self) -> QuerySet[ComputeSession]:
        """Return the visible sessions with everything that an answer contains."""
        return shown_sessions(user_of(self.request))

    @extend_schema(
        request=LaunchRequest,
        responses={201: SessionBody, 200: SessionBody},
        parameters=[
            OpenApiParameter(
                "Idempotency-Key", str, OpenApiParameter.HEADER, description="Sent again, it launches nothing new."
            )
        ],
    )
    def post(self, request: Request) -> Response:
        """Launch a session; 200 with the earlier session if the idempotency key was used before."""
        key = idempotency_key(request)
        (spec, retry), pair = launch_asked_for(request), signing_pair(request)
        if pair and not spec.owner:
            spec = replace(spec, access_key=pair.access_key)
        if retry:
            found, is_new = launch_with_retries(user_of(request), spec, retry, idempotency_key=key, now=timezone.now())
            made = get_object_or_404(shown_sessions(user_of(request)), pk=found.pk)
            code = status.HTTP_201_CREATED if is_new else status.HTTP_200_OK
            return Response(self.get_serializer(made).data, status=code)
        launched = launch_session(user_of(request), spec, idempotency_key=key)
        if launched.kernels is None:
            earlier = get_object_or_404(shown_sessions(user_of(request)), pk=launched.session.pk)
            return Response(self.get_serializer(earlier).data)
        made = shown_at_launch(launched.session, launched.kernels)
        return Response(self.get_serializer(made).data, status=status.HTTP_201_CREATED)


class SessionDetail(RetrieveAPIView[ComputeSession]):
    """One session."""

    queryset = ComputeSession.objects.none()
    serializer_class = SessionBody
    filter_backends: list[Any] = []
    lookup_url_kwarg = "session_id"

    def get_queryset(self) -> QuerySet[ComputeSession]:
        """Return the visible sessions with everything that an answer contains."""
        return shown_sessions(user_of(self.request))


class SessionEnd(GenericAPIView[ComputeSession]):
    """Terminating a session."""

    serializer_class = SessionBody
    token_scopes = (Scope.SESSIONS,)

    @extend_schema(request=TerminateRequest, responses=SessionBody)
    def post(self, request: Request, session_id: UUID) -> Response:
        """Terminate the session; ``force`` ends its programs at once. 409 if it has ended."""
        visible = (
            ComputeSession.objects.visible_to(user_of(request))
            .select_related("owner")
            .only("name", "status", "owner__email")
        )
        session = get_object_or_404(visible, pk=session_id)
        body = TerminateRequest(data=request.data)
        body.is_valid(raise_exception=True)
        terminate_session(session, user_of(request), force=body.validated_data["force"])
        return Response(self.get_serializer(get_object_or_404(shown_sessions(user_of(request)), pk=session_id)).data)


class SessionsEnd(GenericAPIView[Any]):
    """Terminating many sessions."""

    serializer_class = EndedManyBody
    token_scopes = (Scope.SESSIONS,)

    @extend_schema(
        operation_id="v1_sessions_terminate_many_create", request=TerminateManyRequest, responses=EndedManyBody
    )
    def post(self, request: Request) -> Response:
        """Terminate at most 100 sessions; the response names those that could not be terminated, with the reason."""
        body = TerminateManyRequest(data=request.data)
        body.is_valid(raise_exception=True)
        asked = body.validated_data
        done = terminate_sessions(user_of(request), asked["sessions"], force=asked["force"], now=timezone.now())
        return Response(EndedManyBody(done).data)


class SessionName(GenericAPIView[ComputeSession]):
    """The name of a session."""

    serializer_class = SessionBody
    token_scopes = (Scope.SESSIONS,)

    @extend_schema(request=RenameRequest, responses=SessionBody)
    def post(self, request: Request, session_id: UUID) -> Response:
        """Rename the session; 409 if it has ended, or another live session of its owner has the name."""
        visible = ComputeSession.objects.visible_to(user_of(request)).select_related("owner")
        session = get_object_or_404(visible, pk=session_id)
        body = RenameRequest(data=request.data)
        body.is_valid(raise_exception=True)
        rename_session(session, user_of(request), body.validated_data["name"])
        return Response(self.get_serializer(get_object_or_404(shown_sessions(user_of(request)), pk=session_id)).data)


class SessionPriority(GenericAPIView[ComputeSession]):
    """The priority of a pending session."""

    serializer_class = SessionBody
    token_scopes = (Scope.SESSIONS,)

    @extend_schema(request=PriorityRequest, responses=SessionBody)
    def post(self, request: Request, session_id: UUID) -> Response:
        """Change the priority; 409 ``not-pending`` if the session is no longer pending."""
        visible = ComputeSession.objects.visible_to(user_of(request)).select_related("owner", "project__domain")
        session = get_object_or_404(visible, pk=session_id)
        body = PriorityRequest(data=request.data)
        body.is_valid(raise_exception=True)
        set_priority(session, user_of(request), body.validated_data["priority"])
        return Response(self.get_serializer(get_object_or_404(shown_sessions(user_of(request)), pk=session_id)).data)


class SessionEndTime(GenericAPIView[ComputeSession]):
    """The latest end of a running session."""

    serializer_class = SessionBody
    token_scopes = (Scope.SESSIONS,)

    @extend_schema(request=EndTimeRequest, responses=SessionBody)
    def post(self, request: Request, session_id: UUID) -> Response:
        """Move the end; 400 ``end-too-late`` beyond the policies of the owner, 409 ``not-running``."""
        session = get_object_or_404(ComputeSession.objects.visible_to(user_of(request)), pk=session_id)
        body = EndTimeRequest(data=request.data)
        body.is_valid(raise_exception=True)
        set_end(session, user_of(request), body.validated_data["ends_at"], now=timezone.now())
        return Response(self.get_serializer(get_object_or_404(shown_sessions(user_of(request)), pk=session_id)).data)


class SessionKernels(GenericAPIView[Kernel]):
    """The kernels of a session, the main one first."""

    serializer_class = KernelBody
    filter_backends: list[Any] = []

    @extend_schema(responses=KernelBody(many=True))
    def get(self, request: Request, session_id: UUID) -> Response:
        """Return all kernels, at most 16."""
        session = get_object_or_404(ComputeSession.objects.visible_to(user_of(request)), pk=session_id)
        return Response(self.get_serializer(shown_kernels(session.kernels.all()), many=True).data)


class SessionHistory(ListAPIView[SchedulingRecord]):
    """The scheduling history of a session."""

    queryset = SchedulingRecord.objects.none()
    serializer_class = RecordBody
    pagination_class = NewestFirst
    filterset_class = HistoryFilter
    filter_backends = [FiltersAskedFor, OrderingFilter]
    ordering_fields = ["created_at", "updated_at"]
    ordering = ["-created_at"]

    def get_queryset(self) -> QuerySet[SchedulingRecord]:
        """Return the scheduling history of a visible session."""
        if getattr(self, "swagger_fake_view", False):
            return SchedulingRecord.objects.none()
        visible = ComputeSession.objects.visible_to(user_of(self.request))
        session: ComputeSession = get_object_or_404(visible, pk=self.kwargs["session_id"])
        return session.records.order_by()
