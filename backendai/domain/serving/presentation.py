"""What pages and REST show of endpoints: one function for both, in a fixed number of queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from backendai.base.core.messages import Message
from backendai.domain.cluster.app_domains import COMMON_LABEL, app_domain_of, origin_of, program_url
from backendai.domain.serving.measures import Reading, counts_of, quantile, spans_of
from backendai.domain.serving.models import Endpoint, ProxyReading, Replica
from backendai.domain.serving.reading import EndpointsReading, ObservedReplica, read_endpoints
from backendai.domain.serving.services.acting import Decision, decide
from backendai.domain.usage.samples import accelerator_parts
from backendai.scheduler.serving.health import Health, health_of
from backendai.scheduler.serving.rollout import starts_again
from backendai.scheduler.serving.snapshot import EndpointView, Reason

MOST_POINTS = 240


@dataclass(frozen=True, slots=True)
class EndpointSummary:
    """An endpoint as it is now. ``reason``: why it is as it is, the most pressing one."""

    endpoint: Endpoint
    view: EndpointView
    health: Health
    decision: Decision
    replicas: tuple[ObservedReplica, ...]

    @property
    def ready(self) -> int:
        """How many replicas answer."""
        return sum(one.serves for one in self.view.replicas)

    @property
    def open(self) -> int:
        """How many requests its replicas have open."""
        return sum(one.open for one in self.replicas)

    @property
    def reason(self) -> Reason:
        """The reason of what holds it up, else of its number."""
        return (
            self.decision.rollout.reason or starts_again(self.view) or self._unanswered() or self.decision.scale.reason
        )

    def _unanswered(self) -> Reason | None:
        """Return the error of a probe while replicas should answer and none does. None if none was probed."""
        silent = [one for one in self.replicas if one.message and one.is_silent]
        if self.health not in (Health.STARTING, Health.UNAVAILABLE) or not silent:
            return None
        number = silent[0].replica.number
        text = Message.joined([Message("Replica {number} is not ready.", number=number), silent[0].message])
        return Reason("probe-failed", text, {"replica": number})

    @property
    def url(self) -> str:
        """Its own origin."""
        return url_of(self.endpoint)

    @property
    def program_url(self) -> str:
        """Where programs send requests."""
        return program_url(host_of(self.endpoint), f"/endpoints/{self.endpoint.label}")

    @property
    def common_url(self) -> str:
        """Where programs name the model in the request."""
        return program_url(f"{COMMON_LABEL}.{app_domain_of('')}", "") + "/v1"

    @property
    def model(self) -> str:
        """Its name at the common address."""
        current = self.endpoint.current
        return (current.model_name if current else "") or self.endpoint.name


@dataclass(frozen=True, slots=True)
class Point:
    """One span of the plots. Rates are per second, ``open`` is a mean; ``p95`` None: nothing was answered."""

    at: datetime
    requests: float
    open: float
    queued: int
    errors: float
    p95: float | None


def url_of(endpoint: Endpoint) -> str:
    """Return the address of an endpoint, without a path."""
    return origin_of(host_of(endpoint))


def host_of(endpoint: Endpoint) -> str:
    """Return the host name of an endpoint."""
    return f"{endpoint.label}.{app_domain_of('')}"


def shown(endpoints: Iterable[Endpoint], now: datetime) -> list[EndpointSummary]:
    """Return these endpoints as they are now, in their order. Eight queries."""
    rows = list(endpoints)
    pass_reading = read_endpoints(now, [one.pk for one in rows])
    by_endpoint: defaultdict[UUID, list[ObservedReplica]] = defaultdict(list)
    for seen in pass_reading.seen.values():
        by_endpoint[seen.replica.endpoint_id].append(seen)
    return [_shown(one, pass_reading, by_endpoint[one.pk]) for one in rows if one.pk in pass_reading.views]


def points_of(endpoint: Endpoint, since: datetime, now: datetime, at_most: int = MOST_POINTS) -> list[Point]:
    """Return the plot of an endpoint: means of at most so many spans. One query."""
    columns = (*Reading._fields, "errors")
    step = max((now - since) / at_most, timedelta(seconds=2))
    # What the first span counts from comes before it.
    rows = ProxyReading.objects.filter(endpoint=endpoint, at__gte=since - step, at__lte=now).order_by("at")
    buckets: defaultdict[int, list[tuple[Reading, int]]] = defaultdict(list)
    for *values, errors in rows.values_list(*columns):
        reading = Reading(*values)
        buckets[(reading.at - since) // step].append((reading, errors))
    points, before = [], dict[tuple[str, str], tuple[Reading, int]]()
    for number, found in sorted(buckets.items()):
        if number >= 0:
            points.append(_point(since + step * (number + 1), step, found, before))
        before |= {(one.proxy, one.boot): (one, errors) for one, errors in found}
    return points


def accelerators_of(endpoint: Endpoint, since: datetime, now: datetime) -> list[tuple[datetime, float]]:
    """Return which part of their accelerators the replicas used, over time; empty without accelerators. Three
    queries."""
    rows = Replica.objects.filter(endpoint=endpoint).exclude(ended_at__lte=since)
    return accelerator_parts(list(rows.values_list("session", flat=True)), since, now, MOST_POINTS)


def _point(
    at: datetime,
    step: timedelta,
    found: Sequence[tuple[Reading, int]],
    before: dict[tuple[str, str], tuple[Reading, int]],
) -> Point:
    last = {(one.proxy, one.boot): (one, errors) for one, errors in found}
    earlier = [before[key] for key in last if key in before]
    readings = [one for one, _ in (*earlier, *found)]
    spans = [one for one in spans_of(readings, step.total_seconds()) if one.seconds > 0]
    seconds = max((one.seconds for one in spans), default=0.0)
    failed = sum(max(errors - before.get(key, (one, errors))[1], 0) for key, (one, errors) in last.items())
    return Point(
        at=at,
        requests=sum(one.requests / one.seconds for one in spans),
        open=sum(one.busy_seconds / one.seconds for one in spans),
        queued=sum(one.queued + one.held for one, _ in last.values()),
        errors=failed / seconds if seconds else 0.0,
        p95=quantile(counts_of(spans), 0.95),
    )


def _shown(endpoint: Endpoint, pass_reading: EndpointsReading, replicas: Sequence[ObservedReplica]) -> EndpointSummary:
    view = pass_reading.views[endpoint.pk]
    # The row that was read has its revisions at hand; the one that came may have less.
    row = pass_reading.endpoints[endpoint.pk]
    return EndpointSummary(row, view, health_of(view), decide(view, pass_reading.now), tuple(replicas))
