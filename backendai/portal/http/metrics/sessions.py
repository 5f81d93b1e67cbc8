"""Metrics of sessions: what runs, what waits, what has started in the last hour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, DurationField, ExpressionWrapper, F, Min, Q, Sum
from django.db.models.functions import Coalesce
from prometheus_client.core import GaugeHistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.status import LIVE, TERMINAL
from backendai.portal.http.metrics.families import Gauge

_RECENT = timedelta(hours=1)
_WAITS = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600)
_STARTS = (1, 2, 5, 10, 30, 60, 300, 900)
_MAIN_RANK = 0


def of_sessions(now: datetime) -> Iterator[Gauge | Metric]:
    """Yield the families of sessions; three queries."""
    kinds = ("resource_group__name", "session_type", "status")
    rows = ComputeSession.objects.live().order_by(*kinds).values_list(*kinds).annotate(Count("pk"))
    counts = [(labels, n) for *labels, n in rows]
    yield Gauge("backendai_sessions", "Sessions that have not ended.", ("group", "type", "status"), counts)
    yield from _waiting(now)
    yield from _started(now)


def _waiting(now: datetime) -> Iterator[Gauge | Metric]:
    order = ("resource_group__name", "status_reason")
    pending = ComputeSession.objects.pending().order_by(*order).values_list(*order)
    waits = list(pending.annotate(Count("pk"), Min("created_at")))
    labels = ("group", "reason")
    counts = [(one[:2], one[2]) for one in waits]
    yield Gauge("backendai_pending_sessions", "Waiting sessions by reason.", labels, counts)
    ages = [(one[:2], max((now - one[3]).total_seconds(), 0.0)) for one in waits]
    yield Gauge("backendai_oldest_wait_seconds", "Age of the oldest waiting session by reason.", labels, ages)


def _started(now: datetime) -> Iterator[Gauge | Metric]:
    """Yield how long the sessions of the last hour waited for a place, and then for their start."""
    since = now - _RECENT
    # What has started since then is live, or has ended since then: both are found by an index.
    recent = Q(status__one_of=LIVE) | Q(status__one_of=TERMINAL, ended_at__gte=since)
    labels = ("resource_group__name", "kernels__agent__backend")
    ready = Coalesce("starts_at", "created_at")
    rows = (
        ComputeSession.objects.filter(recent, started_at__gte=since, kernels__rank=_MAIN_RANK)
        .alias(wait=_between(ready, F("scheduled_at")), start=_between(F("scheduled_at"), F("started_at")))
        .order_by(*labels)
        .values_list(*labels)
        .annotate(Sum("wait"), Sum("start"), **_counts("wait", _WAITS), **_counts("start", _STARTS), number=Count("pk"))
    )
    by_place = list(rows)
    about = "of sessions that started in the last hour; it shrinks as they grow older, so use it without rate()"
    cut = 4 + len(_WAITS)
    waits = [(one[:2], [*one[4:cut], one[-1]], one[2]) for one in by_place]
    yield _histogram("backendai_wait_seconds", f"Time from launch (or start time) to place {about}.", _WAITS, waits)
    starts = [(one[:2], [*one[cut:-1], one[-1]], one[3]) for one in by_place]
    yield _histogram("backendai_start_seconds", f"Time from place to start {about}.", _STARTS, starts)


def _between(begin: Any, end: Any) -> ExpressionWrapper:
    return ExpressionWrapper(end - begin, output_field=DurationField())


def _counts(name: str, bounds: Sequence[int]) -> dict[str, Count]:
    """Return the numbers of rows whose ``name`` is at most each bound, in seconds."""
    return {f"{name}_{one}": Count("pk", filter=Q(**{f"{name}__lte": timedelta(seconds=one)})) for one in bounds}


def _histogram(name: str, text: str, bounds: Sequence[int], rows: list[tuple[Any, list[int], Any]]) -> Metric:
    family = GaugeHistogramMetricFamily(name, text, labels=("group", "backend"))
    names = [*map(floatToGoString, bounds), "+Inf"]
    for values, counts, total in rows:
        seconds = total.total_seconds() if total else 0.0
        family.add_metric([value or "" for value in values], list(zip(names, counts, strict=True)), seconds)
    return family
