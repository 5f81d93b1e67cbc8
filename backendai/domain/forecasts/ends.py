"""Forecasts when batch sessions and runs end. Nothing is stored: pages and REST read it when they show it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from graphlib import TopologicalSorter
from typing import Any
from uuid import UUID

from django.db.models import Case, Count, F, Window
from django.db.models import When as WhenCase
from django.db.models.functions import RowNumber

from backendai.base.db.bulk import among
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.status import Status as SessionStatus
from backendai.domain.forecasts.learning import FEATURES, Features, counts_of, keys_of
from backendai.domain.pipelines.models import Edge, Run, State, Status, Step, Task
from backendai.scheduler.forecasts.ends import EndRange, RunEnd, StepWork, run_end, session_end
from backendai.scheduler.forecasts.lengths import with_length
from backendai.scheduler.runs.snapshot import When

_MOST_RUNS = 20
_EARLIER_RUNS, _LENGTHS = 5, 50  # of each name, and of each step of those
_LARGEST = 1_000  # elements of an earlier run; a larger run soon knows its lengths itself
_LATELY = timedelta(days=180)
_OPEN = [State.WAITING, State.RELEASED]


def session_ends(sessions: Collection[ComputeSession], now: datetime) -> dict[UUID, EndRange]:
    """Return when running batch sessions probably end, by id; those of which it is unknown are missing. One query."""
    running = [each for each in sessions if each.kind.has_result and each.is_running and each.started_at]
    features = {each: Features(*(getattr(each, name) for name in FEATURES)) for each in running}
    counts = counts_of({key for one in features.values() for key in keys_of(one)}) if running else {}
    found = {}
    for each, one in features.items():
        assert each.started_at is not None
        groups = [counts[key] for key in keys_of(one) if key in counts]
        if end := session_end(groups, each.started_at, now):
            found[each.pk] = end
    return found


def run_ends(runs: Collection[Run], now: datetime) -> dict[UUID, RunEnd]:
    """Return when runs probably end, by id; those of which it is unknown are missing. Only the first ``_MOST_RUNS``
    that go on. Five queries; none if no run goes on."""
    going = [run for run in runs if run.status == Status.RUNNING][:_MOST_RUNS]
    if not going:
        return {}
    ids = among([run.pk for run in going])
    steps: dict[UUID, list[Step]] = defaultdict(list)
    for step in Step.objects.filter(run__in=ids).only("run_id", "name", "at_once", "is_finally").order_by("place"):
        steps[step.run_id].append(step)
    edges: dict[UUID, list[tuple[str, str]]] = defaultdict(list)
    for pk, name, when in Edge.objects.filter(step__run__in=ids).values_list("step_id", "on__name", "when"):
        edges[pk].append((name, when))
    left, counts = _left(ids, now), _counts(going)
    found = {}
    for run in going:
        lengths = {step.pk: counts[(run.owner_id, run.name, step.name)] for step in steps[run.pk]}
        works = _works(run, steps[run.pk], edges, left, lengths)
        # While nothing of it runs, nobody knows how many would run at once.
        if any(work.ran for work in works) and (end := run_end(_ordered(works), now)):
            found[run.pk] = end
    return found


def _works(
    run: Run,
    steps: Sequence[Step],
    edges: Mapping[UUID, Sequence[tuple[str, str]]],
    left: Mapping[UUID, tuple[int, list[timedelta]]],
    lengths: Mapping[UUID, Sequence[float]],
) -> list[StepWork]:
    """Return what is left of each step. Of a step that has begun as many elements run at once as now, as something
    limits it; of another at least as many as of the whole run now, and at most as its limits allow."""
    running = sum(len(ran) for _, ran in (left[step.pk] for step in steps))
    works = []
    for step in steps:
        number, ran = left[step.pk]
        edges_of = edges[step.pk]
        after = frozenset(name for name, when in edges_of if when != When.EACH)
        if step.is_finally:
            after = frozenset(other.name for other in steps if not other.is_finally)
        # What waits for a failure is expected not to run.
        if not ran and any(when == When.FAILURE for _, when in edges_of):
            number = 0
        each = frozenset(name for name, when in edges_of if when == When.EACH)
        many = len(ran) or min(limit for limit in (step.at_once, run.at_once, max(number, 1)) if limit)
        few = min(max(running, 1), many)
        works.append(StepWork(step.name, after, each, number, ran, few, many, lengths[step.pk]))
    return works


def _ordered(works: Sequence[StepWork]) -> list[StepWork]:
    """Return the steps so that each comes after those that it waits for; a document has no cycle."""
    by_name = {work.name: work for work in works}
    order = TopologicalSorter({work.name: work.after | work.each for work in works}).static_order()
    return [by_name[name] for name in order]


def _left(run_ids: Any, now: datetime) -> dict[UUID, tuple[int, list[timedelta]]]:
    """Return by step how many elements do not run yet, and for how long the others have run. One query."""
    found: dict[UUID, tuple[int, list[timedelta]]] = defaultdict(lambda: (0, []))
    rows = Task.objects.filter(step__run__in=run_ids, state__in=_OPEN).order_by()
    began = Case(WhenCase(session__status=SessionStatus.RUNNING, then=F("session__started_at")))
    for pk, at, number in rows.values_list("step_id", began).annotate(number=Count("pk")):
        waiting, ran = found[pk]
        found[pk] = (waiting, ran + [max(now - at, timedelta(0))] * number) if at else (waiting + number, ran)
    return found


def _counts(runs: Sequence[Run]) -> dict[tuple[UUID, str, str], list[float]]:
    """Return the lengths of ended elements by owner, run's name and step's name: of these runs, and of the last that
    succeeded under the same names. Two queries."""
    names = {(run.owner_id, run.name) for run in runs}
    since = max(run.created_at for run in runs) - _LATELY
    earlier = Run.objects.filter(
        owner__in={owner for owner, _ in names}, name__in={name for _, name in names},
        status=Status.SUCCEEDED, created_at__gt=since, size__lte=_LARGEST,
    )  # fmt: skip
    turn = Window(RowNumber(), partition_by=[F("owner"), F("name")], order_by=F("created_at").desc())
    last = earlier.order_by().annotate(turn=turn).filter(turn__lte=_EARLIER_RUNS).values_list("pk", flat=True)
    ids = [*last, *(run.pk for run in runs)]
    ended = Task.objects.filter(step__run__in=among(ids), state=State.SUCCEEDED, session__started_at__isnull=False)
    newest = Window(RowNumber(), partition_by=F("step"), order_by=F("ended_at").desc())
    columns = ("step__run__owner_id", "step__run__name", "step__name", "session__started_at", "session__ended_at")
    rows = ended.order_by("ended_at").annotate(turn=newest).filter(turn__lte=_LENGTHS).values_list(*columns)
    found: dict[tuple[UUID, str, str], list[float]] = defaultdict(list)
    for owner, run_name, step, started_at, ended_at in rows:
        if ended_at is not None:
            key = (owner, run_name, step)
            found[key] = with_length(found[key], (ended_at - started_at).total_seconds())
    return found
