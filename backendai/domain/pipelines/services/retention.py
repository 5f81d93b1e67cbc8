"""Deletes runs that ended long ago, with their steps, elements and tries."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings

from backendai.base.db.bulk import among
from backendai.domain.pipelines.models import Attempt, Edge, Run, Step, Task

_MOST_RUNS, _MOST_TASKS = 200, 20_000


def delete_old_runs(now: datetime) -> int:
    """Delete runs that ended more than ``KEEP_RUNS`` ago, as many as have 20,000 elements at most; returns how many
    rows. 0: keep all."""
    if not settings.KEEP_RUNS:
        return 0
    old = Run.objects.filter(ended_at__lt=now - settings.KEEP_RUNS).order_by("ended_at")
    ids: list[Any] = []
    elements = 0
    for pk, size in old.values_list("pk", "size")[:_MOST_RUNS]:
        if ids and elements + size > _MOST_TASKS:
            break
        ids.append(pk)
        elements += size
    return _delete(ids)


def _delete(ids: list[Any]) -> int:
    """Delete these runs, the rows that name others first: each statement is its own transaction, and the next call
    continues where one was cut off."""
    if not ids:
        return 0
    runs = among(ids)
    rows = (
        Attempt.objects.filter(task__step__run__in=runs),
        Task.objects.filter(step__run__in=runs),
        Edge.objects.filter(step__run__in=runs),
        Step.objects.filter(run__in=runs),
        Run.objects.filter(pk__in=runs),
    )
    return sum(part.order_by()._raw_delete(part.db) for part in rows)
