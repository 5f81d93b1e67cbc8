"""What pages and REST show of runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Count, Prefetch
from django.db.models.fields.json import KeyTransform

from backendai.compute.models import Kernel
from backendai.compute.services.bulk import among
from backendai.compute.services.log_ends import ends_of_logs, why_no_logs
from backendai.pipelines.models import Edge, Run, State, Step, Task

MOST_FAILURES = 50

# Requests and values of a large step take a second to read for each element that is fetched with it.
_NOT_LISTED = ("request", "secrets", "values")


@dataclass(frozen=True, slots=True)
class StepOutline:
    """A step without its request. ``after``: the steps that it waits for, and how those must end."""

    id: UUID
    name: str
    size: int
    is_finally: bool
    message: str
    after: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """An element that failed, with its own variables, why, and the end of its log, or why it has none."""

    task: Task
    values: dict[str, str]
    reason: str
    log: str
    no_log: str


def counts_of(runs: Collection[Run]) -> dict[UUID, Counter[State]]:
    """Return by run how many elements are in each state; one query."""
    found: dict[UUID, Counter[State]] = defaultdict(Counter)
    if not runs:
        return found
    rows = Task.objects.filter(step__run__in=among([run.pk for run in runs])).order_by()
    for run, state, number in rows.values_list("step__run", "state").annotate(Count("pk")):
        found[run][State(state)] = number
    return found


def step_counts(run: Run) -> dict[UUID, Counter[State]]:
    """Return by step how many elements are in each state; one query."""
    found: dict[UUID, Counter[State]] = defaultdict(Counter)
    rows = Task.objects.filter(step__run=run).order_by().values_list("step", "state").annotate(Count("pk"))
    for step, state, number in rows:
        found[step][State(state)] = number
    return found


def steps_of(run: Run) -> list[Step]:
    """Return the steps in the order of the document, with their edges; two queries."""
    edges = Edge.objects.select_related("on").only("step", "when", "on__name").order_by("pk")
    rows = run.steps.defer(*_NOT_LISTED).prefetch_related(Prefetch("edges", edges))
    return list(rows.order_by("place"))


def outline_of(run: Run) -> list[StepOutline]:
    """Return the steps in the order of the document, without their requests; two queries."""
    after: dict[UUID, list[tuple[str, str]]] = defaultdict(list)
    edges = Edge.objects.filter(step__run=run).order_by("pk").values_list("step", "on__name", "when")
    for step, name, when in edges:
        after[step].append((name, when))
    rows = Step.objects.filter(run=run).order_by("place")
    told = rows.values_list("pk", "name", "size", "is_finally", "message")
    return [StepOutline(*one, after=tuple(after[one[0]])) for one in told]


def own_values(task: Task) -> dict[str, str]:
    """Return the variables that are an element's own; one query, which reads those of this element alone."""
    own = Step.objects.filter(pk=task.step_id).annotate(own=KeyTransform(str(task.place), "values"))
    found: dict[str, str] | None = own.values_list("own", flat=True).first()
    return found or {}


def fetched_values(task: Task) -> dict[str, str]:
    """Return the variables that are an element's own; its step must have been fetched with its values."""
    found: dict[str, str] = task.step.values[task.place] if task.step.values else {}
    return found


def with_zeros(counts: Mapping[State, int]) -> dict[str, int]:
    """Return the numbers of all states by their names in small letters."""
    return {state.lower(): counts.get(state, 0) for state in State}


def failures_of(run: Run, now: datetime) -> list[Failure]:
    """Return the first elements that failed, each with the end of its log, or why there is none; at most five
    queries."""
    rows = Task.objects.filter(step__run=run, state=State.FAILED).select_related("session").prefetch_related("step")
    tasks = list(rows.order_by("step__place", "place")[:MOST_FAILURES])
    ends = ends_of_logs([task.session_id for task in tasks if task.session_id])
    silent = [task.session_id for task in tasks if task.session_id and not ends.get(task.session_id)]
    kernels = list(Kernel.objects.filter(session__in=silent, rank=0).select_related("session")) if silent else []
    whys = why_no_logs(kernels, now)
    without = {kernel.session_id: whys[kernel.pk] for kernel in kernels}
    return [
        Failure(
            task,
            fetched_values(task),
            task.session.reason_text if task.session else task.code,
            ends.get(task.session_id, "") if task.session_id else "",
            without.get(task.session_id, "") if task.session_id else "",
        )
        for task in tasks
    ]
