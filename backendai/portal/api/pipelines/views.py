"""Runs of arrays and pipelines: lists, launches and explains them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.db.models import Exists, F, OuterRef
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.compute.querysets import with_labels
from backendai.domain.forecasts.ends import run_ends
from backendai.domain.pipelines.comparing import differences, last_good
from backendai.domain.pipelines.elements import MOST_TASKS
from backendai.domain.pipelines.explaining import why_waits
from backendai.domain.pipelines.models import Run, State, Step, Task
from backendai.domain.pipelines.presentation import counts_of, failures_of, first_waits, step_counts, steps_of
from backendai.domain.pipelines.services.creating import RunSpec, check_run, create_run
from backendai.portal.api.frame.authentication import signing_pair
from backendai.portal.api.frame.idempotency import idempotency_key, launched_answer
from backendai.portal.api.frame.paging import NewestFirst, OnePage, only_page
from backendai.portal.api.frame.parsing import BoundedSerializer, body_of, values_of
from backendai.portal.api.frame.views import PartView, ResourceView
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
_LABEL = OpenApiParameter("label", str, many=True, description="key or key=value; runs with a step that has them.")
_STEP = OpenApiParameter("step", str, description="Its name; default: every step.")


class ByPlace(NewestFirst):
    """Pages as of ``NewestFirst``, in the order of the document.

    One number for each element: a page begins after it, and steps of 10,000 elements have it in common otherwise.
    """

    ordering = ("order",)
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


class BatchRunView(ResourceView[Run]):
    """The base of the views of runs."""

    queryset = Run.objects.select_related("owner", "project")
    serializer_class: type[Any] = BatchRunBody
    lookup_url_kwarg = "run_id"
    token_scopes = (Scope.SESSIONS,)


class BatchRunList(BatchRunView, ListAPIView[Run]):
    """The visible runs; launches one."""

    serializer_class = RunBriefBody
    pagination_class = NewestFirst
    launches = keeps_key = True

    @extend_schema(parameters=[_LABEL])
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return a page of runs with their counts and reasons to wait."""
        labels = request.query_params.getlist("label")
        steps = with_labels(Step.objects.filter(run=OuterRef("pk")), labels, "request__labels")
        rows_of = self.get_queryset().filter(Exists(steps)) if labels else self.get_queryset()
        page = self.paginate_queryset(rows_of.defer("text")) or []
        counts, waits = counts_of(page), first_waits(page)
        rows = [brief(run, counts[run.pk], waits.get(run.pk, "")) for run in page]
        return self.get_paginated_response(RunBriefBody(rows, many=True).data)

    @extend_schema(
        request=RunRequest,
        responses={201: BatchRunBody, 200: BatchRunBody},
    )
    def post(self, request: Request) -> Response:
        """Launch a run; 200 with the earlier run if the idempotency key was used before."""
        body = body_of(RunRequest, request.data)
        key = idempotency_key(request)
        run, is_new = create_run(self.user, _wish(body, request), idempotency_key=key, now=timezone.now())
        return launched_answer(run_body(run), is_new=is_new)


def _wish(body: RunRequest, request: Request) -> RunSpec:
    """Return the requested run, which counts against the key pair that signed the request."""
    wish, pair = body.wish(), signing_pair(request)
    return replace(wish, access_key=pair.access_key) if pair else wish


class BatchRunPreview(BatchRunView):
    """Checking a run without launching it."""

    serializer_class = RunPreviewBody

    @extend_schema(request=RunRequest, responses=RunPreviewBody)
    def post(self, request: Request) -> Response:
        """Check a run without creating it; the errors are those of a launch."""
        body = body_of(RunRequest, request.data)
        found = check_run(self.user, _wish(body, request))
        document = found.document
        steps = [
            {"name": step.name, "size": step.fan.size, "after": step.after, "first_values": step.fan.values[:10]}
            for step in document.steps
        ]
        told = {"kind": document.kind, "name": found.name, "size": document.size, "steps": steps}
        return Response(RunPreviewBody(told).data)


class BatchRunDetail(BatchRunView):
    """One run."""

    def get(self, request: Request, run_id: UUID) -> Response:
        """Return the run with its steps and their counts."""
        return Response(run_body(self.get_object()))


class BatchRunTasks(PartView[Task], ListAPIView[Task]):
    """The elements of a run."""

    owner_view = BatchRunView
    owner_field = "step__run"
    queryset = Task.objects.annotate(order=F("step__place") * MOST_TASKS + F("place")).prefetch_related("step")
    serializer_class = TaskBody
    pagination_class = ByPlace

    @extend_schema(parameters=[_STEP, OpenApiParameter("state", str, enum=State.values)])
    def get(self, request: Request, run_id: UUID) -> Response:
        """Return a page of elements in the order of the document."""
        rows, asked = self.get_queryset(), values_of(TaskQuery, request.query_params)
        if "step" in asked:
            rows = rows.filter(step__name=asked["step"])
        if "state" in asked:
            rows = rows.filter(state=asked["state"])
        page = self.paginate_queryset(rows) or []
        return self.get_paginated_response(TaskBody(task_bodies(page), many=True).data)


class BatchRunFailures(BatchRunView):
    """The failed elements of a run."""

    serializer_class = FailureBody
    pagination_class = OnePage

    @extend_schema(responses=FailureBody(many=True))
    def get(self, request: Request, run_id: UUID) -> Response:
        """Return the first 50 elements that failed, each with its reason and the end of its log."""
        run = self.get_object()
        found = failures_of(run, timezone.now())
        bodies = task_bodies([one.task for one in found])
        told = [body | {"reason": one.reason, "log": one.log} for body, one in zip(bodies, found, strict=True)]
        return only_page(FailureBody(told, many=True).data)


class BatchRunExplanation(BatchRunView):
    """The reasons why an element waits."""

    serializer_class = RunWaitBody

    @extend_schema(parameters=[_STEP, OpenApiParameter("index", int)], responses=RunWaitBody)
    def get(self, request: Request, run_id: UUID) -> Response:
        """Return the reasons: the run, its step, an edge, a limit, the scheduler."""
        run = self.get_object()
        asked = values_of(ExplainQuery, request.query_params)
        rows = Task.objects.filter(step__run=run, index=asked["index"]).select_related("step", "session")
        rows = rows.filter(step__name=asked["step"]) if "step" in asked else rows.order_by("step__place")
        task = rows.first() or get_object_or_404(rows)
        reasons = [{"code": one.code, "message": one.message} for one in why_waits(run, task, timezone.now())]
        told = {"step": task.step.name, "index": task.index, "state": task.state, "reasons": reasons}
        return Response(RunWaitBody(told).data)


class BatchRunComparison(BatchRunView):
    """The differences from an earlier run."""

    serializer_class = RunComparisonBody

    @extend_schema(parameters=[_WITH], responses=RunComparisonBody)
    def get(self, request: Request, run_id: UUID) -> Response:
        """Compare with the newest successful earlier run of this name, or with another run."""
        run = self.get_object()
        values = values_of(ComparisonQuery, request.query_params)
        other = values.get("with")
        before = get_object_or_404(self.get_queryset(), pk=other) if other else last_good(run)
        found = differences(run, before) if before else []
        told = {
            "before": before.pk if before else None,
            "differences": [{"where": one.where, "before": one.before, "now": one.now} for one in found],
        }
        return Response(RunComparisonBody(told).data)


def run_body(run: Run) -> dict[str, Any]:
    """Return the values of a run with its steps, in four queries, and five more while it goes on."""
    counts = step_counts(run)
    steps = [step_body(step, counts[step.pk]) for step in steps_of(run)]
    total = sum(counts.values(), Counter[str]())
    same = ("text", "template", "parameters")
    told = brief(run, total, first_waits([run]).get(run.pk, "")) | {"steps": steps}
    told |= {name: getattr(run, name) for name in same}
    told["forecast"] = run_ends([run], timezone.now()).get(run.pk)
    return dict(BatchRunBody(told).data)
