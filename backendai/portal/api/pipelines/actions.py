"""Actions on runs: cancel, pause, resume, retry, limit."""

from __future__ import annotations

from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.pipelines.services.changing import cancel_run, pause_run, resume_run, retry_failed, set_at_once
from backendai.portal.api.frame.parsing import values_of
from backendai.portal.api.pipelines.bodies import AtOnceRequest, BatchRunBody, RetryRequest
from backendai.portal.api.pipelines.views import BatchRunView, run_body


class RunAction(BatchRunView):
    """The base of the views of actions on a run."""

    def shown(self) -> Response:
        """Return the run in the address as it is stored now."""
        return Response(run_body(self.get_object()))


class BatchRunCancel(RunAction):
    """Cancelling a run."""

    @extend_schema(request=None, responses=BatchRunBody)
    def post(self, request: Request, run_id: UUID) -> Response:
        """Cancel the run: waiting elements never run, running ones end. 409 if the run has ended."""
        cancel_run(self.get_object(), self.user, now=timezone.now())
        return self.shown()


class BatchRunPause(RunAction):
    """Pausing a run."""

    @extend_schema(request=None, responses=BatchRunBody)
    def post(self, request: Request, run_id: UUID) -> Response:
        """Pause the run: no more elements are launched until it is resumed, and running ones continue."""
        pause_run(self.get_object(), self.user)
        return self.shown()


class BatchRunResume(RunAction):
    """Resuming a paused run."""

    @extend_schema(request=None, responses=BatchRunBody)
    def post(self, request: Request, run_id: UUID) -> Response:
        """Resume the run. 409 if it is not paused."""
        resume_run(self.get_object(), self.user)
        return self.shown()


class BatchRunRetry(RunAction):
    """Retrying failed elements."""

    @extend_schema(request=RetryRequest, responses=BatchRunBody)
    def post(self, request: Request, run_id: UUID) -> Response:
        """Retry failed and cancelled elements, and those skipped because of them."""
        run = self.get_object()
        asked = values_of(RetryRequest, request.data)
        retry_failed(run, self.user, step=asked["step"], indexes=asked.get("indexes"), now=timezone.now())
        return self.shown()


class BatchRunAtOnce(RunAction):
    """The number of simultaneous sessions of a run."""

    @extend_schema(request=AtOnceRequest, responses=BatchRunBody)
    def post(self, request: Request, run_id: UUID) -> Response:
        """Change the number of simultaneous sessions; running ones continue."""
        run = self.get_object()
        values = values_of(AtOnceRequest, request.data)
        set_at_once(run, self.user, values["at_once"])
        return self.shown()
