"""What pages and REST show of runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Case, CharField, Count, F, Prefetch, QuerySet, Value, When, Window
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import RowNumber

from backendai.base.core.messages import Message
from backendai.base.db.bulk import among
from backendai.domain.activity.notice_sources import NoticeSource
from backendai.domain.activity.notices import NoticeKind
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.services.records.log_ends import ends_of_logs, why_no_logs
from backendai.domain.compute.status import STARTING
from backendai.domain.compute.status import Status as SessionStatus
from backendai.domain.pipelines.models import Edge, Run, State, Status, Step, Task

MOST_FAILURES = 50
# Launched elements: the session waits for an agent, has one, or is ending.
QUEUED, RUNNING, TERMINATING = "QUEUED", "RUNNING", "TERMINATING"
LAUNCHED = (QUEUED, RUNNING, TERMINATING)
Counts = Counter[str]  # by state; RELEASED is the sum of LAUNCHED
_GOING = frozenset({*STARTING, SessionStatus.RUNNING})

# Their owner is notified once they have ended; of what one cancelled, one need not be.
RUNS = NoticeSource(
    Run,
    {Status.SUCCEEDED: NoticeKind.FINISHED, Status.FAILED: NoticeKind.FAILED},
    column="status",
    at="ended_at",
    deferred=("text",),
)

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


def shown_state() -> Case:
    """Return an expression for an element's state in which launched elements are QUEUED, RUNNING or TERMINATING."""
    of_runs = ComputeSession.objects.filter(run_id__isnull=False).order_by()
    going = of_runs.live().filter(status__one_of=_GOING)  # the first condition names the index
    return Case(
        When(state=State.RELEASED, session__in=of_runs.pending().values("pk"), then=Value(QUEUED)),
        When(state=State.RELEASED, session__in=going.values("pk"), then=Value(RUNNING)),
        When(state=State.RELEASED, then=Value(TERMINATING)),
        default=F("state"),
        output_field=CharField(),
    )


def state_of(task: Task) -> str:
    """Return the state of an element whose session is loaded, as ``shown_state``."""
    if task.state != State.RELEASED:
        return str(task.state)
    status = task.session.status if task.session else ""
    if status == SessionStatus.PENDING:
        return QUEUED
    return RUNNING if status in _GOING else TERMINATING


def counts_of(runs: Collection[Run]) -> dict[UUID, Counts]:
    """Return by run how many elements are in each state; one query."""
    rows = Task.objects.filter(step__run__in=among([run.pk for run in runs]))
    return _counted(rows, "step__run") if runs else defaultdict(Counter)


def step_counts(run: Run) -> dict[UUID, Counts]:
    """Return by step how many elements are in each state; one query."""
    return _counted(Task.objects.filter(step__run=run), "step")


def _counted(tasks: QuerySet[Task], key: str) -> dict[UUID, Counts]:
    found: dict[UUID, Counts] = defaultdict(Counter)
    rows: Any = tasks.order_by().annotate(shown=shown_state()).values_list(key, "shown").annotate(Count("pk"))
    for pk, state, number in rows:
        found[pk][state] = number
        if state in LAUNCHED:
            found[pk][State.RELEASED] += number
    return found


def status_of(run: Run, counts: Mapping[str, int]) -> str:
    """Return the run's status; WAITING while it goes on and none of its elements runs or ends."""
    is_waiting = not counts.get(RUNNING) and not counts.get(TERMINATING)
    return State.WAITING if run.status == Status.RUNNING and is_waiting else run.status


def first_waits(runs: Collection[Run]) -> dict[UUID, str]:
    """Return by run why its first queued element waits, without runs that have none; at most one query."""
    if not runs:
        return {}
    order = [F("queue_position").asc(nulls_last=True), F("run_task__step__place").asc(), F("run_task__place").asc()]
    turn = Window(RowNumber(), partition_by=F("run_id"), order_by=order)
    queued = ComputeSession.objects.pending().filter(run_id__in=among([run.pk for run in runs]))
    first = queued.filter(run_task__state=State.RELEASED).annotate(turn=turn).filter(turn=1)
    unseen = Message("The scheduler has not looked at it yet.")
    return {one.run_id: one.reason_text or unseen for one in first.only("run_id", "status_message", "status_reason")}


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


def with_zeros(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers of all states by their names in small letters."""
    return {state.lower(): counts.get(state, 0) for state in (*State, *LAUNCHED)}


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
