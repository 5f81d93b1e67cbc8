"""Reads all endpoints from the database, frozen, in a fixed number of queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings

from backendai.base.core.slots import is_accelerator
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.status import PLACED, Status
from backendai.domain.serving.measures import LONG, Reading, highest, load_of, spans_of, with_peaks
from backendai.domain.serving.models import (
    AutoScalingRule,
    Endpoint,
    ProxyReading,
    Replica,
    ReplicaSight,
    Revision,
    ServingProxy,
    State,
)
from backendai.domain.serving.rule_kinds import RULE_KINDS, Measured
from backendai.domain.usage.samples import averages
from backendai.scheduler.serving.snapshot import (
    DesiredState,
    EndpointView,
    ReplicaState,
    ReplicaView,
    RevisionView,
    RuleView,
)

HEARD, GONE = timedelta(seconds=10), timedelta(minutes=10)
SILENT = timedelta(seconds=30)  # then a replica is no capacity any more
_SUBSTITUTE_STARTS = timedelta(minutes=10)
_WINDOW = timedelta(seconds=45)
_GPU_WINDOW = timedelta(seconds=60)
_READING = tuple(Reading._fields)


@dataclass(frozen=True, slots=True)
class ObservedReplica:
    """A replica with its session, and what app proxies say of it. ``answering``: by live proxy."""

    replica: Replica
    agents: tuple[tuple[str, bool, bool], ...]  # of its kernels: name, is lost, is being drained
    answering: Mapping[str, bool]
    open: int
    message: str

    @property
    def is_silent(self) -> bool:
        """Every app proxy that can be heard says that it does not answer; unknown is not silent."""
        return bool(self.answering) and not any(self.answering.values())

    @property
    def has_answered(self) -> bool:
        """An app proxy gets answers of it."""
        return any(self.answering.values())


@dataclass(frozen=True, slots=True)
class EndpointsReading:
    """All endpoints that have something to do, as one look saw them."""

    now: datetime
    endpoints: Mapping[UUID, Endpoint]
    views: Mapping[UUID, EndpointView]
    seen: Mapping[UUID, ObservedReplica]
    peaks: Mapping[UUID, list[list[float]]]
    proxies: Sequence[ServingProxy]  # that may hold an endpoint table, heard lately or not
    versions: Mapping[tuple[UUID, str], int]  # endpoint and proxy → the version in the proxy's table


def read_endpoints(now: datetime, endpoint_ids: Collection[UUID] | None = None) -> EndpointsReading:
    """Return all endpoints that are not over (or these alone). Eight queries, however many there are; two more where
    a rule looks at accelerators."""
    rows = Endpoint.objects.unfinished() if endpoint_ids is None else Endpoint.objects.filter(pk__in=endpoint_ids)
    endpoints = {one.pk: one for one in rows.select_related("current", "next", "resource_group", "owner").order_by()}
    proxies = list(ServingProxy.objects.filter(left_at=None, seen_at__gt=now - _book_lasts()))
    heard = {one.name for one in proxies if one.seen_at >= now - HEARD}
    replicas = list(
        Replica.objects.live().filter(endpoint__in=endpoints).select_related("session", "revision").order_by("number")
    )
    seen = _seen(replicas, proxies, heard)
    readings = _readings(endpoints, now)
    rules, errors = _rules(endpoints), _answers_by_revision(endpoints)
    versions = {(pk, proxy): version for pk, rows in readings.items() for proxy, version in rows[1].items()}
    is_partial = any(one.name not in heard and one.seen_at > now - GONE for one in proxies)
    own: defaultdict[UUID, list[ObservedReplica]] = defaultdict(list)
    for one in replicas:
        own[one.endpoint_id].append(seen[one.pk])
    readers = {pk for pk in own if any(RULE_KINDS[rule.metric].reads_accelerators for rule in rules[pk])}
    measured = [one for pk in readers for one in own[pk]]
    gpu = _gpu_use([one.replica.session_id for one in measured if one.replica.state == State.READY], now)
    views, peaks = {}, {}
    for pk, endpoint in endpoints.items():
        load = load_of(readings[pk][0], now, is_partial=is_partial)
        peaks[pk] = with_peaks(endpoint.peaks, load.long + load.backlog, now)
        ready = sum(one.replica.state == State.READY for one in own[pk])
        views[pk] = replace(
            _endpoint_view(endpoint, errors),
            replicas=tuple(_replica_view(one, now) for one in own[pk]),
            load=replace(load, peak=highest(peaks[pk], now)),
            rules=_rule_views(rules[pk], readings[pk][0], ready, _mean_gpu(own[pk], gpu), now),
        )
    return EndpointsReading(now, endpoints, views, seen, peaks, proxies, versions)


def order_of(endpoint: Endpoint) -> DesiredState:
    """Return the endpoint's wish as it holds now: nothing runs for an owner who is deactivated."""
    wish = DesiredState(endpoint.wish)
    return DesiredState.STOPPED if wish == DesiredState.RUN and not endpoint.owner.is_active else wish


def _endpoint_view(endpoint: Endpoint, errors: Mapping[UUID, tuple[int, int]]) -> EndpointView:
    revisions = [one for one in (endpoint.current, endpoint.next) if one is not None]
    return EndpointView(
        id=endpoint.pk,
        wish=order_of(endpoint),
        current=endpoint.current.number if endpoint.current else 0,
        next=endpoint.next.number if endpoint.next else None,
        minimum=endpoint.minimum,
        maximum=endpoint.maximum,
        target=endpoint.target,
        desired=endpoint.desired,
        reached=endpoint.reached,
        panic_until=endpoint.panic_until,
        created_at=endpoint.created_at,
        scaled_at=endpoint.scaled_at,
        asked_at=endpoint.asked_at,
        asleep_after=endpoint.asleep_after,
        max_surge=endpoint.max_surge,
        max_unavailable=endpoint.max_unavailable,
        revisions={one.number: _revision_view(one, errors) for one in revisions},
    )


def _replica_view(one: ObservedReplica, now: datetime) -> ReplicaView:
    replica, session = one.replica, one.replica.session
    waits = session.status == Status.PENDING
    lost = any(is_lost for _, is_lost, _ in one.agents)
    silent = replica.silent_since is not None and now - replica.silent_since >= SILENT
    return ReplicaView(
        id=replica.pk,
        number=replica.number,
        revision=replica.revision.number,
        state=ReplicaState(replica.state),
        waits_for=(session.status_reason or "waiting") if waits else "",
        wait_message=session.status_message if waits else "",
        is_answering=not lost and not silent,
        is_leaving=any(is_drained for *_, is_drained in one.agents) or _ends_soon(replica, now),
        ready_at=replica.ready_at,
        open=one.open,
    )


def _ends_soon(replica: Replica, now: datetime) -> bool:
    """Return whether a policy's maximum run time will end the replica before long: it is time for a substitute, which
    has to start, and for the requests that are open then."""
    session = replica.session
    if session.ends_at is None or session.started_at is None:
        return False
    ahead = min(_SUBSTITUTE_STARTS + replica.revision.drain_timeout, (session.ends_at - session.started_at) / 2)
    return bool(session.ends_at - now <= ahead)


def _book_lasts() -> timedelta:
    """Return how long a proxy serves from its endpoint table after it last reached the database."""
    return timedelta(seconds=settings.SERVING_TRUST)


def _seen(
    replicas: Sequence[Replica], proxies: Sequence[ServingProxy], heard: Collection[str]
) -> dict[UUID, ObservedReplica]:
    """Return each replica with what proxies say of it. One that was cut off from the database says nothing of health,
    and its requests are still open: its last number counts until it starts again."""
    boots = {one.name: one.boot for one in proxies}
    agents: defaultdict[UUID, list[tuple[str, bool, bool]]] = defaultdict(list)
    kernels = Kernel.objects.filter(session__in=[one.session_id for one in replicas], status__in=PLACED)
    columns = ("session", "agent__name", "agent__status", "agent__drain_started_at")
    for session, name, status, drained_at in kernels.order_by("rank").values_list(*columns):
        agents[session].append((name, status == Agent.Status.LOST, drained_at is not None))
    answering: defaultdict[UUID, dict[str, bool]] = defaultdict(dict)
    opened: defaultdict[UUID, int] = defaultdict(int)
    messages: dict[UUID, str] = {}
    for sight in ReplicaSight.objects.filter(replica__in=[one.pk for one in replicas]):
        if boots.get(sight.proxy) == sight.boot:
            opened[sight.replica_id] += sight.open
            if sight.proxy not in heard:
                continue
            answering[sight.replica_id][sight.proxy] = sight.is_answering
            messages[sight.replica_id] = sight.message
    return {
        pk: ObservedReplica(one, tuple(agents[one.session_id]), answering[pk], opened[pk], messages.get(pk, ""))
        for pk, one in ((one.pk, one) for one in replicas)
    }


def _readings(endpoints: Iterable[UUID], now: datetime) -> dict[UUID, tuple[list[Reading], dict[str, int]]]:
    found: dict[UUID, tuple[list[Reading], dict[str, int]]] = {pk: ([], {}) for pk in endpoints}
    rows = ProxyReading.objects.filter(endpoint__in=found, at__gt=now - _WINDOW).order_by("at")
    for pk, version, *columns in rows.values_list("endpoint", "book_version", *_READING):
        reading = Reading(*columns)
        found[pk][0].append(reading)
        found[pk][1][reading.proxy] = version
    return found


def _rules(endpoints: Iterable[UUID]) -> defaultdict[UUID, list[AutoScalingRule]]:
    found: defaultdict[UUID, list[AutoScalingRule]] = defaultdict(list)
    for rule in AutoScalingRule.objects.filter(endpoint__in=list(endpoints), is_active=True, metric__in=RULE_KINDS):
        found[rule.endpoint_id].append(rule)
    return found


def _rule_views(
    rules: Sequence[AutoScalingRule], readings: Sequence[Reading], ready: int, gpu: float | None, now: datetime
) -> tuple[RuleView, ...]:
    spans = [one for one in spans_of(readings, LONG) if one.seconds > 0] if rules else []
    measured = Measured(readings, spans, ready, gpu, now)
    kinds = [RULE_KINDS[one.metric] for one in rules]
    return tuple(
        RuleView(kind.label, kind.value(one, measured), one.up_over, one.down_under, one.step, kind.needs_queue)
        for kind, one in zip(kinds, rules, strict=True)
    )


def _gpu_use(session_ids: Sequence[UUID], now: datetime) -> dict[UUID, float]:
    """Return how much of their accelerators sessions used in the last minute, in per cent. Two queries, none for none;
    sessions that were not measured for half of it are left out."""
    if not session_ids:
        return {}
    found: dict[UUID, float] = {}
    for pk, average in averages(session_ids, now - _GPU_WINDOW, now).items():
        used = [value for slot, value in average.slots.items() if is_accelerator(slot) and value is not None]
        if used and average.covered_seconds >= _GPU_WINDOW.total_seconds() / 2:
            found[pk] = 100 * max(used)
    return found


def _mean_gpu(replicas: Sequence[ObservedReplica], gpu: Mapping[UUID, float]) -> float | None:
    used = [gpu[one.replica.session_id] for one in replicas if one.replica.session_id in gpu]
    return sum(used) / len(used) if used else None


def _answers_by_revision(endpoints: Mapping[UUID, Endpoint]) -> dict[UUID, tuple[int, int]]:
    """Return requests and errors of each revision that is part of an update, as its live replicas counted them."""
    updating = [one.pk for one in endpoints.values() if one.next_id]
    found: defaultdict[UUID, list[int]] = defaultdict(lambda: [0, 0])
    rows = ReplicaSight.objects.filter(replica__endpoint__in=updating).exclude(replica__state=State.ENDED)
    for revision, requests, errors in rows.values_list("replica__revision", "requests", "errors"):
        found[revision][0] += requests
        found[revision][1] += errors
    return {pk: (requests, errors) for pk, (requests, errors) in found.items()}


def _revision_view(revision: Revision, errors: Mapping[UUID, tuple[int, int]]) -> RevisionView:
    requests, failed = errors.get(revision.pk, (0, 0))
    return RevisionView(revision.failed_starts, revision.retry_at, revision.last_error, requests, failed)
