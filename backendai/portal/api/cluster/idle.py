"""Idle checkers for superadmins, and their results for a visible session."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import Http404
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.cluster.idle.checkers import delete_checker, write_checker
from backendai.domain.cluster.models.groups import IdleChecker
from backendai.domain.compute.models.sessions import ComputeSession
from backendai.domain.compute.services.life.idle import extend_idle
from backendai.domain.planning.idle.checks import checks_of
from backendai.portal.api.cluster.idle_bodies import (
    CheckerBody,
    CheckerChange,
    CheckerRequest,
    ExtendRequest,
    IdleChecksBody,
    merged_places,
)
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.paging import ByName


class IdleCheckerList(ListAPIView[IdleChecker]):
    """All idle checkers; creates one."""

    queryset = IdleChecker.objects.none()
    serializer_class = CheckerBody
    pagination_class = ByName
    token_scopes = (Scope.ADMIN,)

    def get_queryset(self) -> QuerySet[IdleChecker]:
        """Return the visible idle checkers with the groups and projects to which they apply."""
        return _visible(self.request)

    @extend_schema(request=CheckerRequest, responses={201: CheckerBody})
    def post(self, request: Request) -> Response:
        """Create an idle checker; its checks start within 15 seconds."""
        if not user_of(request).is_superadmin:
            raise Http404
        body = CheckerRequest(data=request.data)
        body.is_valid(raise_exception=True)
        values = dict(body.validated_data)
        places = merged_places(None, values)
        made = write_checker(user_of(request).pk, IdleChecker(), values, places)
        return Response(_body(request, made.pk), status=status.HTTP_201_CREATED)


class IdleCheckerDetail(GenericAPIView[IdleChecker]):
    """One idle checker."""

    queryset = IdleChecker.objects.none()
    serializer_class = CheckerBody
    token_scopes = (Scope.ADMIN,)
    filter_backends: list[Any] = []

    @extend_schema(responses=CheckerBody)
    def get(self, request: Request, pk: int) -> Response:
        """Return the idle checker."""
        return Response(_body(request, pk))

    @extend_schema(request=CheckerChange, responses=CheckerBody)
    def patch(self, request: Request, pk: int) -> Response:
        """Change the given fields; existing warnings are issued again by the new rule."""
        checker = get_object_or_404(_visible(request), pk=pk)
        body = CheckerChange(data=request.data)
        body.is_valid(raise_exception=True)
        values = dict(body.validated_data)
        places = merged_places(checker, values)
        write_checker(user_of(request).pk, checker, values, places)
        return Response(_body(request, pk))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        """Delete the idle checker; its warnings are cancelled."""
        delete_checker(user_of(request).pk, get_object_or_404(_visible(request), pk=pk))
        return Response(status=status.HTTP_204_NO_CONTENT)


class SessionIdleChecks(GenericAPIView[Any]):
    """The results of the idle checkers for a session."""

    serializer_class = IdleChecksBody
    filter_backends: list[Any] = []

    @extend_schema(responses=IdleChecksBody)
    def get(self, request: Request, session_id: UUID) -> Response:
        """Return each checker with its measurement, limit and remaining time."""
        return Response(_checks(_session(request, session_id)))


class SessionIdleExtension(GenericAPIView[Any]):
    """Extending a warned session."""

    serializer_class = IdleChecksBody
    token_scopes = (Scope.SESSIONS,)
    filter_backends: list[Any] = []

    @extend_schema(request=ExtendRequest, responses=IdleChecksBody)
    def post(self, request: Request, session_id: UUID) -> Response:
        """Postpone the announced end; 409 ``no-more-extensions`` if the checker allows no more."""
        session = _session(request, session_id)
        body = ExtendRequest(data=request.data)
        body.is_valid(raise_exception=True)
        extend_idle(session, user_of(request), body.validated_data["checker"], now=timezone.now())
        return Response(_checks(session))


def _visible(request: Request) -> QuerySet[IdleChecker]:
    rows = IdleChecker.objects.visible_to(user_of(request))
    return rows.prefetch_related("bindings__resource_group", "bindings__project")


def _body(request: Request, pk: int) -> Any:
    return CheckerBody(get_object_or_404(_visible(request), pk=pk)).data


def _session(request: Request, session_id: UUID) -> ComputeSession:
    visible = ComputeSession.objects.visible_to(user_of(request)).select_related("owner")
    session: ComputeSession = get_object_or_404(visible, pk=session_id)
    return session


def _checks(session: ComputeSession) -> Any:
    checks = checks_of(session, now=timezone.now())
    ends = [check.ends_at for check in checks if check.warned_at and check.ends_at]
    return IdleChecksBody({"ends_at": min(ends, default=None), "results": checks}).data
