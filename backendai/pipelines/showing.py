"""What pages and REST show of runs."""

from __future__ import annotations

import gzip
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Count, Prefetch

from backendai.compute.models import KernelLog
from backendai.compute.services.bulk import among
from backendai.pipelines.models import Edge, Run, State, Step, Task

MOST_FAILURES = 50
_TAIL = 4_000


@dataclass(frozen=True, slots=True)
class Failure:
    """An element that failed, why, and the end of its log."""

    task: Task
    reason: str
    log: str


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
    edges = Edge.objects.select_related("on").order_by("pk")
    return list(run.steps.prefetch_related(Prefetch("edges", edges)).order_by("place"))


def with_zeros(counts: Mapping[State, int]) -> dict[str, int]:
    """Return the numbers of all states by their names in small letters."""
    return {state.lower(): counts.get(state, 0) for state in State}


def failures_of(run: Run) -> list[Failure]:
    """Return the first elements that failed, each with the end of its log as far as it is kept; two queries."""
    rows = Task.objects.filter(step__run=run, state=State.FAILED).select_related("step", "session")
    tasks = list(rows.order_by("step__place", "place")[:MOST_FAILURES])
    logs = tails_of([task.session_id for task in tasks if task.session_id])
    return [
        Failure(
            task,
            task.session.reason_text if task.session else task.code,
            logs.get(task.session_id, "") if task.session_id else "",
        )
        for task in tasks
    ]


def tails_of(session_ids: Collection[UUID]) -> dict[UUID, str]:
    """Return the end of the log of the main kernel of each session, where it is kept; one query."""
    rows = KernelLog.objects.filter(kernel__session__in=list(session_ids), kernel__rank=0).order_by()
    kept = rows.values_list("kernel__session", "content")
    return {session: gzip.decompress(bytes(text))[-_TAIL:].decode(errors="replace") for session, text in kept}
