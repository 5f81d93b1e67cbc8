"""Metrics of the platform's parts: database, broker, loops, storage hosts, endpoints."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta

import redis
from django.conf import settings
from django.db import Error as DatabaseFault
from django.db import connection
from django.db.models import Count, F, Max, Min, Q, Sum
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from backendai.domain.cluster.models import PassLease
from backendai.domain.forecasts.models import ForecastScore
from backendai.domain.serving.models import ProxyReading, Replica
from backendai.domain.storage.models import Folder, StorageHost
from backendai.domain.storage.status import LIVE
from backendai.portal.http.metrics.families import Gauge
from backendai.portal.loops.folders import FOLDERS_LEASE
from backendai.portal.loops.idle import IDLE_LEASE
from backendai.portal.loops.loops import PASS_LEASE, REPAIR_LEASE
from backendai.portal.loops.repair.observe import OBSERVE_LEASE
from backendai.scheduler.serving.snapshot import ReplicaState

_LOOPS = (PASS_LEASE, REPAIR_LEASE, IDLE_LEASE, FOLDERS_LEASE, OBSERVE_LEASE)  # those that run without a reason, too
_PATIENCE_SECONDS = 1.0
_RECENT = timedelta(minutes=5)
_NEARLY_FULL = 0.9
_COUNTED = ("requests", "errors", "refused")


def answer_times() -> dict[str, float | None]:
    """Return the seconds that database and broker take to answer, None for one that does not."""
    return {"database": _timed(_ask_database), "broker": _timed(_ask_broker)}


def of_parts(seconds: dict[str, float | None]) -> Iterator[Gauge]:
    """Yield whether the parts have answered; no query."""
    up = [((part,), took is not None) for part, took in seconds.items()]
    yield Gauge("backendai_part_up", "1 when the part answered this scrape.", ("part",), up)
    answers = [((part,), took) for part, took in seconds.items() if took is not None]
    yield Gauge("backendai_part_answer_seconds", "Time of its answer to the shortest question.", ("part",), answers)


def of_loops(now: datetime) -> Iterator[Gauge]:
    """Yield the ages of the loops; one query. How long a pass takes is counted by the control process."""
    rows = PassLease.objects.filter(pk__in=_LOOPS).order_by("name").values_list("name", "finished_at")
    ages = [((name,), max((now - finished).total_seconds(), 0.0)) for name, finished in rows if finished]
    yield Gauge("backendai_loop_age_seconds", "Time since the last finished pass of the loop.", ("loop",), ages)


def of_storage() -> Iterator[Gauge]:
    """Yield the families of storage hosts; two queries."""
    hosts = list(StorageHost.objects.order_by("name").values_list("name", "fault", "total_bytes", "free_bytes"))
    host = ("host",)
    yield Gauge("backendai_storage_up", "1 while its file server works.", host, [((h[0],), not h[1]) for h in hosts])
    for at, kind in ((2, "size"), (3, "free")):
        rows = [((one[0],), one[at]) for one in hosts if one[at] is not None]
        yield Gauge(f"backendai_storage_{kind}_bytes", f"The {kind} of its file system.", host, rows)
    full = Q(used_bytes__gte=F("limit_bytes") * _NEARLY_FULL)
    of_hosts = Folder.objects.filter(status__in=LIVE).order_by("host__name").values_list("host__name")
    sums = list(of_hosts.annotate(Count("pk"), Sum("used_bytes"), Sum("limit_bytes"), full=Count("pk", filter=full)))
    texts = {
        "folders": "Folders that are not deleted.",
        "folder_used_bytes": "Measured use of all folders.",
        "folder_limit_bytes": "Sum of the limits of folders that have one.",
        "folders_nearly_full": f"Folders that use {_NEARLY_FULL:.0%} of their limit.",
    }
    for at, (name, text) in enumerate(texts.items(), 1):
        yield Gauge(f"backendai_{name}", text, host, [((one[0],), one[at] or 0) for one in sums])


def of_endpoints(now: datetime) -> Iterator[Gauge]:
    """Yield the families of endpoints, from replicas and from what app proxies have reported; two queries."""
    rows = Replica.objects.exclude(state=ReplicaState.ENDED).order_by("state").values_list("state")
    counts = [((state,), n) for state, n in rows.annotate(Count("pk"))]
    yield Gauge("backendai_replicas", "Replicas of endpoints.", ("state",), counts)
    by_boot = ("endpoint__resource_group__name", "endpoint", "proxy", "boot")
    ends = [end for name in _COUNTED for end in (Max(name), Min(name))]
    readings = ProxyReading.objects.filter(at__gt=now - _RECENT).order_by().values_list(*by_boot).annotate(*ends)
    sums = {name: Counter[str]() for name in _COUNTED}
    for group, _, _, _, *numbers in readings:
        for at, name in enumerate(_COUNTED):
            sums[name][group] += numbers[2 * at] - numbers[2 * at + 1]
    for name, found in sums.items():
        text = f"What app proxies counted as {name} of endpoints in the last five minutes."
        rows_of = [((group,), number) for group, number in sorted(found.items())]
        yield Gauge(f"backendai_endpoint_recent_{name}", text, ("group",), rows_of)


def _timed(ask: Callable[[], object]) -> float | None:
    began = time.perf_counter()
    try:
        ask()
    except (DatabaseFault, RedisError, ValueError):
        return None
    return time.perf_counter() - began


def _ask_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def _ask_broker() -> None:
    client = redis.Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=_PATIENCE_SECONDS,
        socket_connect_timeout=_PATIENCE_SECONDS,
        retry=Retry(NoBackoff(), 0),  # the client's own takes seconds
    )
    with closing(client):
        client.ping()


def of_forecasts() -> Iterator[Gauge]:
    """Yield how the last forecasts of starts came true, of groups with some; one query."""
    names = ("resource_group__name", "inside", "error_seconds")
    scores = list(ForecastScore.objects.order_by("resource_group__name").values_list(*names))
    text = "Share of the last 200 starts within the range of their first forecast; 0.8 is right."
    inside = [((group,), share) for group, share, _ in scores]
    yield Gauge("backendai_forecast_inside_ratio", text, ("group",), inside)
    text = "Median distance of the last 200 starts from their first forecast."
    errors = [((group,), error) for group, _, error in scores]
    yield Gauge("backendai_forecast_error_seconds", text, ("group",), errors)
