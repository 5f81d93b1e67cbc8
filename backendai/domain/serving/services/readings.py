"""Taking in what app proxies count: a few statements for however many endpoints and replicas, on both databases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import F, Max, Q

from backendai.base.core.messages import Message
from backendai.base.wire.broker.hints import hint_on_commit
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.domain.serving.models import DesiredState, Endpoint, ProxyReading, Replica, ReplicaSight, ServingProxy
from backendai.domain.serving.moves import note

KEEP_FINE = timedelta(minutes=15)
KEEP_COARSE = timedelta(days=7)
_COUNTERS = ("at", "is_answering", "message", "open", "requests", "errors", "boot")
_MOST_FORGOTTEN = 5_000
_ASKED_TO, _ROUGHLY_TO = timedelta(seconds=10), timedelta(minutes=10)
_REPORTED = timedelta(seconds=60)  # a proxy at rest reports every ten seconds


@dataclass(frozen=True, slots=True)
class ProxyCounts:
    """What one proxy has counted of an endpoint since its boot; the fields are those of ``ProxyReading``."""

    endpoint_id: UUID
    book_version: int
    requests: int = 0
    completions: int = 0
    errors: int = 0
    refused: int = 0
    busy_seconds: float = 0.0
    queued_seconds: float = 0.0
    open: int = 0
    queued: int = 0
    held: int = 0
    histogram: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaReading:
    """What one proxy knows of a replica now."""

    replica_id: UUID
    is_answering: bool
    message: str = ""
    open: int = 0
    requests: int = 0
    errors: int = 0


def record(
    proxy: str,
    boot: str,
    uptime: float,
    tallies: Sequence[ProxyCounts],
    sights: Sequence[ReplicaReading],
    *,
    now: datetime,
) -> None:
    """Write that the proxy lives, and what it has counted. Endpoints and replicas that are gone are passed over."""
    with transaction.atomic():
        ServingProxy.objects.update_or_create(name=proxy, defaults={"boot": boot, "seen_at": now, "left_at": None})
        asked = _asked(proxy, boot, tallies, now)
        known = set(Endpoint.objects.filter(pk__in=[one.endpoint_id for one in tallies]).values_list("pk", flat=True))
        ProxyReading.objects.bulk_create(
            _reading(proxy, boot, uptime, one, now) for one in tallies if one.endpoint_id in known
        )
        _note_asked(asked, now)
        live = set(
            Replica.objects.live().filter(pk__in=[one.replica_id for one in sights]).values_list("pk", flat=True)
        )
        ReplicaSight.objects.bulk_create(
            [_sight(proxy, boot, one, now) for one in sights if one.replica_id in live],
            update_conflicts=True,
            unique_fields=["replica", "proxy"],
            update_fields=_COUNTERS,
        )


def farewell(proxy: str, boot: str, *, now: datetime) -> None:
    """Note that the proxy stops in good order: what it counted is complete, and nobody waits for its word."""
    ServingProxy.objects.filter(name=proxy, boot=boot).update(left_at=now)


def note_wake(endpoint_id: UUID, *, now: datetime) -> None:
    """Start the first replica of an endpoint that sleeps, at once."""
    asleep = Endpoint.objects.filter(pk=endpoint_id, desired=0, wish=DesiredState.RUN, owner__is_active=True)
    with transaction.atomic():
        if asleep.update(desired=1, asked_at=now, scaled_at=now, version=F("version") + 1):
            note(endpoint_id, "woken", now=now, after=1, message=Message("A request came: the first replica starts."))
            hint_on_commit("controller.run_serving", queue=CONTROL_QUEUE)


def delete_old_readings(now: datetime) -> int:
    """Delete what is old: of fine readings all but the last of each minute, and everything after a week; returns how
    many rows."""
    old = ProxyReading.objects.filter(at__lt=now - KEEP_COARSE)
    doomed = list(old.values_list("pk", flat=True)[:_MOST_FORGOTTEN])
    fine = ProxyReading.objects.filter(at__lt=now - KEEP_FINE, at__gte=now - 2 * KEEP_FINE).order_by("at", "pk")
    last: dict[tuple[object, ...], int] = {}
    for pk, proxy, boot, endpoint, at in fine.values_list("pk", "proxy", "boot", "endpoint", "at"):
        key = (proxy, boot, endpoint, int(at.timestamp()) // 60)
        if key in last:
            doomed.append(last[key])
        last[key] = pk
    return ProxyReading.objects.filter(pk__in=doomed[:_MOST_FORGOTTEN]).delete()[0] if doomed else 0


def _asked(proxy: str, boot: str, tallies: Sequence[ProxyCounts], now: datetime) -> list[UUID]:
    """Return the endpoints with a request open or waiting, or with more requests than this proxy reported before: short
    ones are rarely open at the moment of a report."""
    rows = ProxyReading.objects.filter(endpoint__in=[one.endpoint_id for one in tallies], at__gt=now - _REPORTED)
    before = dict(rows.filter(proxy=proxy, boot=boot).order_by().values_list("endpoint").annotate(Max("requests")))
    return [
        one.endpoint_id
        for one in tallies
        if one.open or one.queued or one.held or one.requests > before.get(one.endpoint_id, 0)
    ]


def _note_asked(endpoint_ids: Sequence[UUID], now: datetime) -> None:
    """Note when endpoints were asked: to ten seconds where they may sleep, else to ten minutes, which saves writes."""
    known = Q(asked_at__gt=now - _ASKED_TO) | Q(asked_at__gt=now - _ROUGHLY_TO, minimum__gte=1)
    Endpoint.objects.filter(pk__in=endpoint_ids).exclude(known).update(asked_at=now)


def _reading(proxy: str, boot: str, uptime: float, one: ProxyCounts, now: datetime) -> ProxyReading:
    return ProxyReading(
        proxy=proxy,
        boot=boot,
        endpoint_id=one.endpoint_id,
        at=now,
        uptime=uptime,
        book_version=one.book_version,
        requests=one.requests,
        completions=one.completions,
        errors=one.errors,
        refused=one.refused,
        busy_seconds=one.busy_seconds,
        queued_seconds=one.queued_seconds,
        open=one.open,
        queued=one.queued,
        held=one.held,
        histogram=list(one.histogram),
    )


def _sight(proxy: str, boot: str, one: ReplicaReading, now: datetime) -> ReplicaSight:
    return ReplicaSight(
        proxy=proxy,
        boot=boot,
        replica_id=one.replica_id,
        at=now,
        is_answering=one.is_answering,
        message=one.message[:300],
        open=one.open,
        requests=one.requests,
        errors=one.errors,
    )
