"""Scores forecasts: compares the first forecast of each session with its start."""

from __future__ import annotations

from datetime import datetime, timedelta
from statistics import median

from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.status import Status
from backendai.domain.forecasts.models import ForecastScore, StartForecast
from backendai.scheduler.forecasts.ranges import METHOD, SCORED, Spread, ratio_of, spread_of

_MOST_AT_ONCE, _MOST_SHOWN, _MOST_WORST = 1000, 200, 3
_KEPT = timedelta(days=90)


def score_forecasts(now: datetime) -> int:
    """Score the first forecasts of sessions that have been placed, and delete those of sessions that left before;
    returns 0, as nothing is repaired. Three statements, and two for each group with a new score."""
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
    for group_id in {row.resource_group_id for row in scored}:
        _sum_up(group_id, now)
    return 0


def spread_in(group: ResourceGroup) -> Spread:
    """Return the edges of ranges for the group. One query."""
    return spread_of_score(ForecastScore.objects.filter(pk=group.pk).first())


def spread_of_score(score: ForecastScore | None) -> Spread:
    """Return the edges of ranges for the group with this score."""
    if score is None:
        return spread_of([], [])
    return Spread(score.early, score.late, score.latest, score.is_reliable)


def _sum_up(group_id: int, now: datetime) -> None:
    """Write the score of a group, from its last forecasts: ``SCORED`` for ranges, ``_MOST_SHOWN`` for figures."""
    scored = StartForecast.objects.filter(resource_group=group_id, ratio__isnull=False, method=METHOD)
    columns = ("ratio", "started_at", "first_expected", "first_early", "first_late")
    rows = list(scored.order_by("-started_at").only(*columns)[:SCORED])
    if not rows:
        return
    spread = spread_of([row.ratio or 0.0 for row in rows], [row.was_inside for row in rows])
    shown = sorted(rows[:_MOST_SHOWN], key=_error, reverse=True)
    ForecastScore.objects.update_or_create(
        resource_group_id=group_id,
        defaults={
            "number": len(shown),
            "inside": sum(row.was_inside for row in shown) / len(shown),
            "error_seconds": median(map(_error, shown)),
            "bias": median(row.ratio or 0.0 for row in shown),
            "worst": [str(row.pk) for row in shown[:_MOST_WORST]],
            "early": spread.early,
            "late": spread.late,
            "latest": spread.latest,
            "is_reliable": spread.is_reliable,
            "updated_at": now,
        },
    )


def _error(row: StartForecast) -> float:
    assert row.started_at is not None and row.first_expected is not None
    return abs((row.started_at - row.first_expected).total_seconds())


def delete_old_forecasts(now: datetime) -> int:
    """Delete forecasts that are older than three months; returns how many."""
    return StartForecast.objects.filter(updated_at__lt=now - _KEPT).delete()[0]
