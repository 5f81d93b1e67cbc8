"""Scores forecasts: compares the first forecast of each session with its start."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from django.db.models import F, Window
from django.db.models.functions import RowNumber

from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.status import Status
from backendai.domain.forecasts.models import StartForecast
from backendai.scheduler.forecasts.ranges import ENOUGH, METHOD, SCORED, Spread, ratio_of, spread_of

_MOST_AT_ONCE, _MOST_SHOWN, _MOST_WORST = 1000, 200, 3
_KEPT = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class Score:
    """How the last forecasts of a group came true. ``inside``: the share of starts within the range. ``error``: the
    median distance of start and expectation. ``bias``: the median of waits beside what was expected; above 1 they were
    longer. ``worst``: the forecasts that were most wrong. None until there is one."""

    group: ResourceGroup
    number: int
    inside: float | None = None
    error: timedelta | None = None
    bias: float | None = None
    worst: tuple[StartForecast, ...] = ()

    @property
    def is_reliable(self) -> bool:
        """Whether enough starts were scored to trust the range."""
        return self.number >= ENOUGH


def score_forecasts(now: datetime) -> int:
    """Score the first forecasts of sessions that have been placed, and delete those of sessions that left before;
    returns 0, as nothing is repaired. Three statements."""
    left = StartForecast.objects.filter(ratio__isnull=True).exclude(session__status=Status.PENDING)
    rows = list(left.select_related("session").order_by("updated_at")[:_MOST_AT_ONCE])
    scored, useless = [], []
    for row in rows:
        started_at = row.session.scheduled_at
        if started_at is None or row.first_at is None or row.first_expected is None:
            useless.append(row.pk)
            continue
        row.started_at = started_at
        row.ratio = max(ratio_of(row.first_at, row.first_expected, started_at), 0.0)
        scored.append(row)
    StartForecast.objects.bulk_update(scored, ["started_at", "ratio"])
    if useless:
        StartForecast.objects.filter(pk__in=useless).delete()
    return 0


def spread_in(group: ResourceGroup) -> Spread:
    """Return the edges of ranges for the group, from its last scored forecasts. One query."""
    scored = StartForecast.objects.filter(resource_group=group, ratio__isnull=False, method=METHOD)
    rows = list(scored.order_by("-started_at").only("ratio", "started_at", "first_early", "first_late")[:SCORED])
    return spread_of([row.ratio or 0.0 for row in rows], [row.was_inside for row in rows])


def scores_of(groups: Iterable[ResourceGroup]) -> list[Score]:
    """Return the score of each group, from its last ``_MOST_SHOWN`` forecasts. One query."""
    groups = list(groups)
    rank = Window(RowNumber(), partition_by=F("resource_group"), order_by=F("started_at").desc())
    rows: Any = StartForecast.objects.filter(resource_group__in=groups, ratio__isnull=False, method=METHOD)
    found: dict[int, list[StartForecast]] = defaultdict(list)
    for row in rows.annotate(rank=rank).filter(rank__lte=_MOST_SHOWN).select_related("session__owner"):
        found[row.resource_group_id].append(row)
    return [_score(group, found[group.pk]) for group in groups]


def _score(group: ResourceGroup, rows: list[StartForecast]) -> Score:
    if not rows:
        return Score(group, 0)
    errors = sorted(rows, key=_error, reverse=True)
    return Score(
        group,
        len(rows),
        sum(row.was_inside for row in rows) / len(rows),
        timedelta(seconds=median(_error(row).total_seconds() for row in rows)),
        median(row.ratio or 0.0 for row in rows),
        tuple(errors[:_MOST_WORST]),
    )


def _error(row: StartForecast) -> timedelta:
    assert row.started_at is not None and row.first_expected is not None
    return abs(row.started_at - row.first_expected)


def delete_old_forecasts(now: datetime) -> int:
    """Delete forecasts that are older than three months; returns how many."""
    return StartForecast.objects.filter(updated_at__lt=now - _KEPT).delete()[0]
