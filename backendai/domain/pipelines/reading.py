"""All unfinished runs as ``decide_run`` sees them, in a fixed number of queries."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Subquery, Window
from django.db.models.functions import RowNumber

from backendai.base.db.bulk import among
from backendai.domain.compute.reasons import ReasonKind, reason_of
from backendai.domain.compute.status import TERMINAL, Result
from backendai.domain.compute.status import Status as SessionStatus
from backendai.domain.pipelines.models import Edge, Run, State, Step, Task
from backendai.scheduler.runs.snapshot import (
    UNPLACED_PER_OWNER,
    UNPLACED_PER_STEP,
    Blocked,
    Ended,
    OnFailure,
    Ready,
    RetryRule,
    RunStatus,
    RunView,
    StepView,
    TaskState,
    When,
)
from backendai.scheduler.runs.snapshot import Edge as EdgeView

FAILED_TO_START = "failed-to-start"
_KILLED = 137
_UNMET = [State.FAILED, State.SKIPPED, State.CANCELLED]
_NOT_SUCCEEDED = [State.WAITING, State.RELEASED, *_UNMET]
_MOST_BLOCKED = 1_000
_SESSION = ("status", "result", "status_reason", "status_data")


@dataclass(slots=True)
class RunsReading:
    """The unfinished runs, oldest first, what is to be decided about each, and how many sessions of each owner have no
    agent yet. ``has_more``: what was carried out opens more than was read."""

    now: datetime
    runs: dict[UUID, Run]
    steps: dict[UUID, Step]
    views: dict[UUID, RunView]
    unplaced: Counter[UUID]
    has_more: bool = False


def read_runs(now: datetime, run_ids: Sequence[UUID] | None = None) -> RunsReading:
    """Return the unfinished runs, or these of them; at most seven queries."""
    unfinished = Run.objects.unfinished().select_related("owner").order_by("created_at", "pk")
    runs = {run.pk: run for run in (unfinished if run_ids is None else unfinished.filter(pk__in=among(run_ids)))}
    reading = RunsReading(now, runs, {}, {}, Counter())
    if not runs:
        return reading
    # Requests and values of a large array are a megabyte, which only a launch reads.
    rows = Step.objects.filter(run__in=among(list(runs))).defer("request", "secrets", "values").order_by("place")
    reading.steps = {step.pk: step for step in rows}
    ids = among(list(reading.steps))
    edges, (counts, excused) = _edges(ids), _counts(ids)
    released = list(_released(ids))
    unplaced = Counter(row[1] for row in released if row[4] == SessionStatus.PENDING)
    for step_id, number in unplaced.items():
        reading.unplaced[reading.runs[reading.steps[step_id].run_id].owner_id] += number
    waiting = [
        pk
        for pk, step in reading.steps.items()
        if counts[pk][TaskState.WAITING]
        and runs[step.run_id].status == RunStatus.RUNNING
        and unplaced[pk] < UNPLACED_PER_STEP
    ]
    ready = _ready(waiting, now)
    by_each = [pk for pk in waiting if any(when == When.EACH for _, when in edges.get(pk, ()))]
    blocked = _blocked(by_each)
    ended = _ended(released, reading)
    by_run: dict[UUID, list[StepView]] = defaultdict(list)
    for pk, step in reading.steps.items():
        names = tuple(EdgeView(reading.steps[on].name, When(when)) for on, when in edges.get(pk, ()))
        view = _view(step, counts[pk], names, unplaced[pk], ready.get(pk, ()), blocked.get(pk, ()))
        by_run[step.run_id].append(replace(view, excused=excused[pk]) if excused[pk] else view)
    for pk, run in runs.items():
        reading.views[pk] = _run_view(run, by_run[pk], ended.get(pk, ()))
    return reading


def _run_view(run: Run, steps: Iterable[StepView], ended: Iterable[Ended]) -> RunView:
    on_failure = OnFailure(run.on_failure)
    return RunView(RunStatus(run.status), tuple(steps), tuple(ended), run.at_once, on_failure, UNPLACED_PER_OWNER)


def rule_of(data: Mapping[str, Any]) -> RetryRule:
    """Return the rule that a step keeps."""
    return RetryRule(**{**data, "reasons": frozenset(data.get("reasons", ()))})


def classes_of(code: str, data: Mapping[str, Any]) -> frozenset[str]:
    """Return by which reasons a retry rule may name this end of a session."""
    found = {code}
    kind = reason_of(code).kind
    if kind == ReasonKind.AGENT_LOST:
        found.add("agent-lost")
    elif kind in (ReasonKind.FAULT, ReasonKind.IMAGE):
        found.add(FAILED_TO_START)
    elif code == "out-of-memory" and data.get("exit_code") not in (None, _KILLED):
        found.add("task-failed")  # a process of it was killed, and then the program failed by itself
    if isinstance(exit_code := data.get("exit_code"), int):
        found.add(f"exit:{exit_code}")
    return frozenset(found)


def _view(
    step: Step,
    counts: Mapping[TaskState, int],
    edges: tuple[EdgeView, ...],
    unplaced: int,
    ready: Iterable[Ready],
    blocked: Iterable[Blocked],
) -> StepView:
    return StepView(
        step.name,
        step.size,
        counts,
        edges,
        step.at_once,
        step.probe,
        step.give_up_after,
        step.is_finally,
        unplaced,
        rule_of(step.retry),
        tuple(ready),
        tuple(blocked),
    )


def _edges(ids: Any) -> dict[UUID, list[tuple[UUID, str]]]:
    found: dict[UUID, list[tuple[UUID, str]]] = defaultdict(list)
    for step, on, when in Edge.objects.filter(step__in=ids).order_by("pk").values_list("step", "on", "when"):
        found[step].append((on, when))
    return found


def _counts(ids: Any) -> tuple[dict[UUID, Counter[TaskState]], dict[UUID, Counter[TaskState]]]:
    """Return by step the numbers of its elements by state, and how many of them are excused."""
    found: dict[UUID, Counter[TaskState]] = defaultdict(Counter)
    excused: dict[UUID, Counter[TaskState]] = defaultdict(Counter)
    rows = Task.objects.filter(step__in=ids).order_by().values_list("step", "state")
    for step, state, number, without in rows.annotate(
        number=Count("pk"), excused=Count("pk", filter=Q(is_excused=True))
    ):
        found[step][TaskState(state)] = number
        if without:
            excused[step][TaskState(state)] = without
    return found, excused


def _released(ids: Any) -> QuerySet[Task, Any]:
    rows = Task.objects.filter(step__in=ids, state=State.RELEASED).order_by("step", "place")
    return rows.values_list("pk", "step", "attempt", "index", *(f"session__{name}" for name in _SESSION))


def _ended(rows: Iterable[tuple[Any, ...]], reading: RunsReading) -> dict[UUID, list[Ended]]:
    found: dict[UUID, list[Ended]] = defaultdict(list)
    for pk, step_id, attempt, _, status, result, code, data in rows:
        if status is not None and status not in TERMINAL:
            continue
        step = reading.steps[step_id]
        succeeded = status == SessionStatus.TERMINATED and result == Result.SUCCESS
        cancelled = not succeeded and reason_of(code or "").kind == ReasonKind.REQUEST
        classes = classes_of(code or "", data or {})
        found[step.run_id].append(Ended(pk, step.name, attempt, succeeded, cancelled, code or "", classes))
    return found


def _ready(step_ids: Sequence[UUID], now: datetime) -> dict[UUID, list[Ready]]:
    """Return the next elements of each step: due, and with every element that they wait for succeeded."""
    found: dict[UUID, list[Ready]] = defaultdict(list)
    if not step_ids:
        return found
    held = Edge.objects.filter(
        step=OuterRef("step"), when=When.EACH, on__tasks__place=OuterRef("place"), on__tasks__state__in=_NOT_SUCCEEDED
    )
    waiting = Task.objects.filter(step__in=among(step_ids), state=State.WAITING)
    due = waiting.filter(Q(retry_at=None) | Q(retry_at__lte=now), ~Exists(held))
    turn = Window(RowNumber(), partition_by=F("step"), order_by="place")
    rows = due.annotate(turn=turn).filter(turn__lte=UNPLACED_PER_STEP).order_by("step", "place")
    for pk, step, index in rows.values_list("pk", "step", "index"):
        found[step].append(Ready(pk, index))
    return found


def _blocked(step_ids: Sequence[UUID]) -> dict[UUID, list[Blocked]]:
    """Return elements whose own element of an earlier step ended without success; 1,000 at most."""
    found: dict[UUID, list[Blocked]] = defaultdict(list)
    if not step_ids:
        return found
    unmet = Edge.objects.filter(
        step=OuterRef("step"), when=When.EACH, on__tasks__place=OuterRef("place"), on__tasks__state__in=_UNMET
    )
    rows = Task.objects.filter(Exists(unmet), step__in=among(step_ids), state=State.WAITING).order_by("step", "place")
    first = Subquery(unmet.order_by("pk").values("on__name")[:1])
    for pk, step, index, cause in rows.annotate(because=first).values_list("pk", "step", "index", "because")[
        :_MOST_BLOCKED
    ]:
        found[step].append(Blocked(pk, index, cause))
    return found
