"""The endpoint table, which app proxies keep in memory and in a file: all endpoints, their replicas, digests of tokens.

Only the functions ``read_…`` query the database.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import Avg, Count, F, OuterRef, Q, Subquery, Sum
from django.utils import timezone

from backendai.domain.cluster.app_domains import portal_origins
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.status import Status
from backendai.domain.serving.models import DesiredState, Endpoint, EndpointToken, Replica, ScalingRecord, State
from backendai.domain.serving.reading import order_of

FORMAT = 3
ANYBODY = "anybody"  # replaces a token's id where requests need no token
_SERVES = (State.LOADING, State.READY)
_BLOCKS = frozenset({"start-backoff", "no-room", "over-quota", "update-needs-room"})
_LATELY = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class ReplicaEntry:
    """A replica. It gets requests after this proxy's first successful probe."""

    id: str
    number: int
    revision: int
    kernel_id: str
    generation: int
    gateway_url: str
    port: int
    probe_path: str
    is_ready: bool


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """A token. ``expires_at``: seconds since the epoch; 0: never."""

    digest: str
    id: str
    expires_at: float
    per_minute: int

    def is_over(self, now: float) -> bool:
        """Return whether the token has expired at ``now``, in seconds since the epoch."""
        return bool(self.expires_at) and self.expires_at <= now


@dataclass(frozen=True, slots=True)
class EndpointEntry:
    """One endpoint.

    ``why_none``: why no replica serves, as a text for waiting callers. ``is_blocked``: no replica will start soon, so
    callers do not wait. ``usual_start``: seconds from a replica's creation until it serves, as the mean of the last 30
    days; 0: unknown. ``canary``: the percentage of requests for ``canary_revision``; 0: replicas share equally.
    """

    id: str
    label: str
    version: int
    is_stopped: bool
    can_sleep: bool
    is_public: bool
    concurrency: int
    queue: int
    queue_seconds: float
    hold_seconds: float
    answer_timeout: float
    max_body: int
    is_repeatable: bool
    model_name: str
    name: str = ""
    origins: tuple[str, ...] = ()
    warm_up: float = 0.0
    affinity: str = ""
    canary: int = 0
    canary_revision: int = 0
    why_none: str = ""
    is_blocked: bool = False
    usual_start: float = 0.0
    tokens: tuple[TokenEntry, ...] = ()
    replicas: tuple[ReplicaEntry, ...] = ()

    def token_of(self, digest: str) -> TokenEntry | None:
        """Return the token with this digest."""
        return next((one for one in self.tokens if one.digest == digest), None)

    @property
    def is_open(self) -> bool:
        """Whether requests need no token: the endpoint is public, and the site still allows that."""
        return self.is_public and bool(settings.SERVING_PUBLIC)


@dataclass(frozen=True, slots=True)
class EndpointTable:
    """All endpoints, by the first label of their host names. ``sign``: a text that differs after each change."""

    sign: str = ""
    endpoints: dict[str, EndpointEntry] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the table as JSON values."""
        return {"format": FORMAT, "sign": self.sign, "endpoints": [asdict(one) for one in self.endpoints.values()]}


def from_json(said: dict[str, Any]) -> EndpointTable:
    """Return the table from ``to_json``. Raises ValueError for another format."""
    if said.get("format") != FORMAT:
        raise ValueError(f"an endpoint table of format {said.get('format')!r}")
    try:
        endpoints = [
            EndpointEntry(
                **{
                    **one,
                    "origins": tuple(one["origins"]),
                    "tokens": tuple(TokenEntry(**token) for token in one["tokens"]),
                    "replicas": tuple(ReplicaEntry(**replica) for replica in one["replicas"]),
                }
            )
            for one in said["endpoints"]
        ]
    except (TypeError, KeyError) as error:
        raise ValueError("an endpoint table that cannot be read") from error
    return EndpointTable(str(said.get("sign", "")), {one.label: one for one in endpoints})


def read_sign() -> str:
    """Return the sign of the table in the database. One query."""
    found = Endpoint.objects.aggregate(
        number=Count("pk"), versions=Sum("version"), orphans=Count("pk", filter=Q(owner__is_active=False))
    )
    return f"{found['number']}.{found['versions'] or 0}.{found['orphans']}"


def read_table(now: datetime) -> EndpointTable:
    """Return the table from the database. Five queries, two more if an endpoint has no replica."""
    sign = read_sign()  # first, so that changes during the read are read again
    # Deleted endpoints stay until their last request is complete, as proxies report that no request is open.
    endpoints = list(Endpoint.objects.unfinished().select_related("current", "next", "owner").order_by("pk"))
    tokens = _tokens(endpoints, now)
    replicas = _replicas(endpoints)
    without = [one for one in endpoints if not replicas[one.pk]]
    reasons, starts, coming = _reasons(without), _usual_starts(without), _coming(without)
    entries = {
        one.label: replace(
            _entry(one, tuple(tokens[one.pk]), tuple(replicas[one.pk])),
            why_none=reasons.get(one.pk, ""),
            is_blocked=one.told.get("rollout") in _BLOCKS and one.pk not in coming,
            usual_start=starts.get(one.pk, 0.0),
        )
        for one in endpoints
    }
    return EndpointTable(sign, entries)


def _entry(endpoint: Endpoint, tokens: tuple[TokenEntry, ...], replicas: tuple[ReplicaEntry, ...]) -> EndpointEntry:
    return EndpointEntry(
        id=str(endpoint.pk),
        label=endpoint.label,
        version=endpoint.version,
        is_stopped=order_of(endpoint) != DesiredState.RUN,
        can_sleep=endpoint.minimum == 0,
        is_public=endpoint.is_public and endpoint.owner.is_active,
        concurrency=endpoint.concurrency,
        queue=endpoint.queue,
        queue_seconds=endpoint.queue_seconds,
        hold_seconds=endpoint.hold_seconds,
        answer_timeout=endpoint.answer_timeout,
        max_body=endpoint.max_body,
        is_repeatable=endpoint.is_repeatable,
        model_name=endpoint.current.model_name if endpoint.current else "",
        name=endpoint.name,
        origins=(*portal_origins(), *endpoint.origins),  # the endpoint's page sends requests too
        warm_up=endpoint.warm_up,
        affinity=endpoint.affinity,
        canary=endpoint.canary if endpoint.next else 0,
        canary_revision=endpoint.next.number if endpoint.next else 0,
        tokens=tokens,
        replicas=replicas,
    )


def _tokens(endpoints: list[Endpoint], now: datetime) -> defaultdict[UUID, list[TokenEntry]]:
    """Return the tokens that open each endpoint; none of an owner who is deactivated. One query."""
    of_owner: defaultdict[UUID, list[UUID]] = defaultdict(list)
    for one in endpoints:
        of_owner[one.owner_id].append(one.pk)
    found: defaultdict[UUID, list[TokenEntry]] = defaultdict(list)
    valid = EndpointToken.objects.valid_at(now).filter(endpoint__owner__is_active=True)
    rows = valid.filter(endpoint__in=endpoints).select_related("endpoint")
    for token in rows.only("digest", "expires_at", "per_minute", "opens_all", "endpoint__owner"):
        expires = token.expires_at.timestamp() if token.expires_at else 0.0
        entry = TokenEntry(token.digest, str(token.pk), expires, token.per_minute)
        for pk in of_owner[token.endpoint.owner_id] if token.opens_all else [token.endpoint_id]:
            found[pk].append(entry)
    return found


def _replicas(endpoints: list[Endpoint]) -> defaultdict[UUID, list[ReplicaEntry]]:
    rows = Replica.objects.filter(endpoint__in=endpoints, state__in=_SERVES, session__status=Status.RUNNING)
    replicas = {one.session_id: one for one in rows.select_related("revision").order_by("number")}
    found: defaultdict[UUID, list[ReplicaEntry]] = defaultdict(list)
    kernels = Kernel.objects.filter(session__in=replicas, rank=0, status=Status.RUNNING, agent__isnull=False)
    for kernel in kernels.select_related("agent").only("session", "generation", "agent__gateway_url"):
        one = replicas[kernel.session_id]
        assert kernel.agent is not None
        found[one.endpoint_id].append(
            ReplicaEntry(
                id=str(one.pk),
                number=one.number,
                revision=one.revision.number,
                kernel_id=str(kernel.pk),
                generation=kernel.generation,
                gateway_url=kernel.agent.gateway_url,
                port=one.revision.port,
                probe_path=one.revision.probe_path,
                is_ready=one.state == State.READY,
            )
        )
    return found


def _reasons(endpoints: list[Endpoint]) -> dict[UUID, str]:
    """Return the text of each endpoint's newest decision. One query, at most one row per endpoint."""
    if not endpoints:
        return {}
    newest = ScalingRecord.objects.filter(endpoint=OuterRef("pk")).order_by("-updated_at", "-pk").values("message")[:1]
    rows = Endpoint.objects.filter(pk__in=[one.pk for one in endpoints]).order_by()
    return {pk: message or "" for pk, message in rows.annotate(newest=Subquery(newest)).values_list("pk", "newest")}


def _usual_starts(endpoints: list[Endpoint]) -> dict[UUID, float]:
    """Return the mean seconds from a replica's creation until it served, by endpoint. One query."""
    rows = Replica.objects.filter(
        endpoint__in=endpoints, ready_at__isnull=False, created_at__gt=timezone.now() - _LATELY
    )
    means = rows.order_by().values_list("endpoint").annotate(mean=Avg(F("ready_at") - F("created_at")))
    return {pk: round(mean.total_seconds(), 1) for pk, mean in (means if endpoints else [])}


def _coming(endpoints: list[Endpoint]) -> set[UUID]:
    """Return the endpoints with a replica that is placed and starts. One query."""
    if not endpoints:
        return set()
    rows = Replica.objects.filter(endpoint__in=endpoints, state__in=(State.STARTING, State.LOADING))
    return set(rows.exclude(session__status=Status.PENDING).order_by().values_list("endpoint", flat=True))
