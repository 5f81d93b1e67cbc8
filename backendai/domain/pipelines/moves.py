"""The one writer of states of runs and of their elements, by compare-and-set."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F, QuerySet

from backendai.base.db.bulk import among
from backendai.domain.pipelines.models import Run, State, Status, Task

TASK_MOVES: dict[State, frozenset[State]] = {
    State.WAITING: frozenset({State.RELEASED, State.SKIPPED, State.CANCELLED}),
    State.RELEASED: frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.WAITING}),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset({State.WAITING}),
    State.SKIPPED: frozenset({State.WAITING}),
    State.CANCELLED: frozenset({State.WAITING}),
}
RUN_MOVES: dict[Status, frozenset[Status]] = {
    Status.RUNNING: frozenset({Status.PAUSED, Status.SUCCEEDED, Status.FAILED, Status.CANCELLED}),
    Status.PAUSED: frozenset({Status.RUNNING, Status.SUCCEEDED, Status.FAILED, Status.CANCELLED}),
    Status.SUCCEEDED: frozenset(),
    Status.FAILED: frozenset({Status.RUNNING}),
    Status.CANCELLED: frozenset({Status.RUNNING}),
}
_OVER = frozenset({State.SUCCEEDED, State.FAILED, State.SKIPPED, State.CANCELLED})


def move_tasks(
    tasks: Collection[UUID] | QuerySet[Task],
    to: State,
    *,
    now: datetime,
    source: State | None = None,
    code: str = "",
    cause: str = "",
    **columns: Any,
) -> int:
    """Move the elements whose state allows it, one statement; returns how many. ``source``: only from this state."""
    sources = [one for one, targets in TASK_MOVES.items() if to in targets and source in (None, one)]
    rows = tasks if isinstance(tasks, QuerySet) else Task.objects.filter(pk__in=among(tasks))
    changes: dict[str, Any] = {"state": to, "code": code[:64], "cause": cause, "ended_at": now if to in _OVER else None}
    return rows.order_by().filter(state__in=sources).update(**changes | columns)


def move_run(run_id: UUID, to: Status, *, version: int | None = None, **columns: Any) -> bool:
    """Move a run if its status allows it, and, where a version is given, if it is still that; returns whether."""
    sources = [one for one, targets in RUN_MOVES.items() if to in targets]
    rows = Run.objects.filter(pk=run_id, status__in=sources)
    if version is not None:
        rows = rows.filter(version=version)
    return bool(rows.update(status=to, version=F("version") + 1, **columns))


def grow(run_id: UUID, version: int, *statuses: Status) -> bool:
    """Take the turn to change a run that is as it was read; returns whether it was."""
    rows = Run.objects.filter(pk=run_id, version=version, status__in=statuses)
    return bool(rows.update(version=F("version") + 1))
