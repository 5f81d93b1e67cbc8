"""Runs of arrays and pipelines: lists, launches and explains them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.pipelines.comparing import differences, last_good
from backendai.domain.pipelines.explaining import why_waits
from backendai.domain.pipelines.models import Run, State, Task
from backendai.domain.pipelines.presentation import counts_of, failures_of, first_waits, step_counts, steps_of
from backendai.domain.pipelines.services.creating import RunSpec, check_run, create_run
from backendai.portal.api.frame.authentication import signing_pair, user_of
from backendai.portal.api.frame.idempotency import idempotency_key
from backendai.portal.api.frame.paging import NewestFirst
from backendai.portal.api.frame.parsing import BoundedSerializer
from backendai.portal.api.pipelines.bodies import (
    BatchRunBody,
    FailureBody,
    RunBriefBody,
    RunComparisonBody,
    RunPreviewBody,
    RunRequest,
    RunWaitBody,
    TaskBody,
    brief,
    step_body,
    task_bodies,
)

_WITH = OpenApiParameter("with", UUID, description="Another run; default: the last good one of this name.")
_STEP = OpenApiParameter("step", str, description="Its name; default: every step.")


class ByPlace(NewestFirst):
    """Pages as of ``NewestFirst``, in the order of the document."""

    ordering = ("step__place", "place")
    page_size = 100
    max_page_size = 1000


class TaskQuery(BoundedSerializer):
    """The elements to return."""

    step = serializers.CharField(required=False)
    state = serializers.ChoiceField(choices=State.values, required=False)


class ExplainQuery(BoundedSerializer):
    """The element to explain."""

    step = serializers.CharField(required=False)
    index = serializers.IntegerField(min_value=0, default=0)


class ComparisonQuery(BoundedSerializer):
    """The run to compare with."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Return the field ``with``, which cannot be a class attribute, as it is a keyword of Python."""
        return {"with": serializers.UUIDField(required=False)}


class BatchRunList(ListAPIView[Run]):
    """The visible runs; launches one."""

    queryset = Run.objects.none()
    serializer_class = RunBriefBody
    pagination_class = NewestFirst
    filter_backends: list[Any] = []
    token_scopes = (Scope.SESSIONS,)
    launches = True

    def get_queryset(self) -> QuerySet[Run]:
        """Return the visible runs."""
        return runs_of(self.request)

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return a page of runs with their counts and reasons to wait."""
        page = self.paginate_queryset(self.get_queryset()) or []
        counts, waits = counts_of(page), first_waits(page)
        rows = [brief(run, counts[run.pk], waits.get(run.pk, "")) for run in page]
        return self.get_paginated_response(RunBriefBody(rows, many=True).data)

    @extend_schema(
        request=RunRequest,
        responses={201: BatchRunBody, 200: BatchRunBody},
        parameters=[
            OpenApiParameter(
                "Idempotency-Key", str, OpenApiParameter.HEADER, description="Sent again, it launches nothing new."
            )
        ],
    )
    def post(self, request: Request) -> Response:
        """Launch a run; 200 with the earlier run if the idempotency key was used before."""
        body = RunRequest(data=request.data)
        body.is_valid(raise_exception=True)
        key = idempotency_key(request)
        run, is_new = create_run(user_of(request), _wish(body, request), idempotency_key=key, now=timezone.now())
        return Response(run_body(run), status=status.HTTP_201_CREATED if is_new else status.HTTP_200_OK)


def _wish(body: RunRequest, request: Request) -> RunSpec:
    """Return the requested run, which counts against the key pair that signed the request."""
    wish, pair = body.wish(), signing_pair(request)
    return replace(wish, access_key=pair.access_key) if pair else wish


class BatchRunPreview(GenericAPIView[Run]):
    """Checking a run without launching it."""

    serializer_class = RunPreviewBody
    token_scopes = (Scope.SESSIONS,)

    @extend_schema(request=RunRequest, responses=RunPreviewBody)
    def post(self, request: Request) -> Response:
        """Check a run without creating it; the errors are those of a launch."""
        body = RunRequest(data=request.data)
        body.is_valid(raise_exception=True)
        found = check_run(user_of(request), _wish(body, request))
        document = found.document
        steps = [
            {"name": step.name, "size": step.fan.size, "after": step.after, "first_values": step.fan.values[:10]}
            for step in document.steps
        ]
        told = {"kind": document.kind, "name": found.name, "size": document.size, "steps": steps}
        return Response(RunPreviewBody(told).data)


class BatchRunDetail(GenericAPIView[Run]):
    """One run."""

    serializer_class = BatchRunBody
    filter_backends: list[Any] = []

    def get(self, request: Request, run_id: UUID) -> Response:
        """Return the run with its steps and their counts."""
        return Response(run_body(get_object_or_404(runs_of(request), pk=run_id)))


class BatchRunTasks(ListAPIView[Task]):
    """The elements of a run."""

    queryset = Task.objects.none()
    serializer_class = TaskBody
    pagination_class = ByPlace
    filter_backends: list[Any] = []

    @extend_schema(parameters=[_STEP, OpenApiParameter("state", str, enum=State.values)])
    def get(self, request: Request, run_id: UUID) -> Response:
        """Return a page of elements in the order of the document."""
        run = get_object_or_404(runs_of(request), pk=run_id)
        query = TaskQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        asked = query.validated_data
        rows = Task.objects.filter(step__run=run).prefetch_related("step")  # many elements of few steps
        if "step" in asked:
            rows = rows.filter(step__name=asked["step"])
        if "state" in asked:
            rows = rows.filter(state=asked["state"])
        page = self.paginate_queryset(rows.order_by()) or []
        return self.get_paginated_response(TaskBody(task_bodies(page), many=True).data)


class BatchRunFailures(GenericAPIView[Run]):
    """The failed elements of a run."""

    serializer_class = FailureBody
    filter_backends: list[Any] = []

    @extend_schema(responses=FailureBody(many=True))
    def get(self, request: Request, run_id: UUID) -> Response:
        """Return the first 50 elements that failed, each with its reason and the end of its log."""
        run = get_object_or_404(runs_of(request), pk=run_id)
        found = failures_of(run, timezone.now())
        bodies = task_bodies([one.task for one in found])
        told = [body | {"reason": one.reason, "log": one.log} for body, one in zip(bodies, found, strict=True)]
        return Response(FailureBody(told, many=True).data)


class BatchRunExplanation(GenericAPIView[Run]):
    """The reasons why an element waits."""

    serializer_class = RunWaitBody
    filter_backends: list[Any] = []

    @extend_schema(parameters=[_STEP, OpenApiParameter("index", int)], responses=RunWaitBody)
    def get(self, request: Request, run_id: UUID) -> Response:
        """Return the reasons: the run, its step, an edge, a limit, the scheduler."""
        run = get_object_or_404(runs_of(request), pk=run_id)
        query = ExplainQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        asked = query.validated_data
        rows = Task.objects.filter(step__run=run, index=asked["index"]).select_related("step", "session")
        rows = rows.filter(step__name=asked["step"]) if "step" in asked else rows.order_by("step__place")
        task = rows.first() or get_object_or_404(rows)
        reasons = [{"code": one.code, "message": one.message} for one in why_waits(run, task, timezone.now())]
        told = {"step": task.step.name, "index": task.index, "state": task.state, "reasons": reasons}
        return Response(RunWaitBody(told).data)


class BatchRunComparison(GenericAPIView[Run]):
    """The differences from an earlier run."""

    serializer_class = RunComparisonBody
    filter_backends: list[Any] = []

    @extend_schema(parameters=[_WITH], responses=RunComparisonBody)
    def get(self, request: Request, run_id: UUID) -> Response:
        """Compare with the newest successful earlier run of this name, or with another run."""
        run = get_object_or_404(runs_of(request), pk=run_id)
        query = ComparisonQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        other = query.validated_data.get("with")
        before = get_object_or_404(runs_of(request), pk=other) if other else last_good(run)
        found = differences(run, before) if before else []
        told = {
            "before": before.pk if before else None,
            "differences": [{"where": one.where, "before": one.before, "now": one.now} for one in found],
        }
        return Response(RunComparisonBody(told).data)


def runs_of(request: Request) -> QuerySet[Run]:
    """Return the visible runs with everything that an answer contains."""
    visible: QuerySet[Run] = Run.objects.visible_to(user_of(request))
    return visible.select_related("owner", "project")


def run_body(run: Run) -> dict[str, Any]:
    """Return the values of a run with its steps, in four queries."""
    counts = step_counts(run)
    steps = [step_body(step, counts[step.pk]) for step in steps_of(run)]
    total = sum(counts.values(), Counter[str]())
    same = ("text", "template", "parameters")
    told = brief(run, total, first_waits([run]).get(run.pk, "")) | {"steps": steps}
    told |= {name: getattr(run, name) for name in same}
    return dict(BatchRunBody(told).data)
