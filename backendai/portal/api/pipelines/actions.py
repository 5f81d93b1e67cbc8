"""Actions on runs: cancel, pause, resume, retry, limit."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.pipelines.models import Run
from backendai.domain.pipelines.services.changing import cancel_run, pause_run, resume_run, retry_failed, set_at_once
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.pipelines.bodies import AtOnceRequest, BatchRunBody, RetryRequest
from backendai.portal.api.pipelines.views import run_body, runs_of


class _Action(GenericAPIView[Run]):
    serializer_class = BatchRunBody
    token_scopes = (Scope.SESSIONS,)
    filter_backends: list[Any] = []

    def _run(self, run_id: UUID) -> Run:
        run: Run = get_object_or_404(runs_of(self.request), pk=run_id)
        return run

    def _answer(self, run: Run) -> Response:
        return Response(run_body(get_object_or_404(runs_of(self.request), pk=run.pk)))


class BatchRunCancel(_Action):
    """Cancelling a run."""

    @extend_schema(request=None, responses=BatchRunBody)
    def post(self, request: Request, run_id: UUID) -> Response:
        """Cancel the run: waiting elements never run, running ones end. 409 if the run has ended."""
        run = self._run(run_id)
        cancel_run(run, user_of(request), now=timezone.now())
        return self._answer(run)


class BatchRunPause(_Action):
    """Pausing a run."""

    @extend_schema(request=None, responses=BatchRunBody)
    def post(self, request: Request, run_id: UUID) -> Response:
        """Pause the run: no more elements are launched until it is resumed, and running ones continue."""
        run = self._run(run_id)
        pause_run(run, user_of(request))
        return self._answer(run)


class BatchRunResume(_Action):
    """Resuming a paused run."""

    @extend_schema(request=None, responses=BatchRunBody)
    def post(self, request: Request, run_id: UUID) -> Response:
        """Resume the run. 409 if it is not paused."""
        run = self._run(run_id)
        resume_run(run, user_of(request))
        return self._answer(run)


class BatchRunRetry(_Action):
    """Retrying failed elements."""

    @extend_schema(request=RetryRequest, responses=BatchRunBody)
    def post(self, request: Request, run_id: UUID) -> Response:
        """Retry failed and cancelled elements, and those skipped because of them."""
        run = self._run(run_id)
        body = RetryRequest(data=request.data)
        body.is_valid(raise_exception=True)
        asked = body.validated_data
        retry_failed(run, user_of(request), step=asked["step"], indexes=asked.get("indexes"), now=timezone.now())
        return self._answer(run)


class BatchRunAtOnce(_Action):
    """The number of simultaneous sessions of a run."""

    @extend_schema(request=AtOnceRequest, responses=BatchRunBody)
    def post(self, request: Request, run_id: UUID) -> Response:
        """Change the number of simultaneous sessions; running ones continue."""
        run = self._run(run_id)
        body = AtOnceRequest(data=request.data)
        body.is_valid(raise_exception=True)
        set_at_once(run, user_of(request), body.validated_data["at_once"])
        return self._answer(run)
