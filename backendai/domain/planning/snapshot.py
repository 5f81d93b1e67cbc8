"""Reads a resource group from the database as a scheduler snapshot, with a fixed number of queries."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Count, Sum

from backendai.base.core.session_kinds import kinds_with
from backendai.base.core.slots import MILLI, Slots
from backendai.domain.accounts.models import Domain, Project, User
from backendai.domain.accounts.policies.applicable import DOMAIN, PROJECT, USER, key_of, limited_holders
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.cluster.time_limits import longest_start
from backendai.domain.compute.models import Allocation, ComputeSession, Kernel
from backendai.domain.compute.services.life.end_times import longest_runs
from backendai.domain.compute.services.placing.cluster_networks import networks_left
from backendai.domain.compute.services.requests.limits import limit_views
from backendai.domain.compute.status import PLACED
from backendai.domain.planning.agents import builds_of, images_there, read_agent_rows, read_agents
from backendai.domain.planning.front import Front
from backendai.domain.planning.queue import Newcomer, Queue, read_queue
from backendai.scheduler.gates import needs_network
from backendai.scheduler.snapshot import (
    SLOT_ORDER,
    AgentView,
    Holder,
    LimitView,
    Networks,
    Rules,
    RunningView,
    Snapshot,
)


def read_limits(holders: Collection[Holder]) -> dict[str, LimitView]:
    """Return the limits of the holders that have a policy, by key. Four queries; one if no holder has a policy."""
    return limit_views(limited_holders({key for holder in set(holders) for key in holder.keys}))


_BLIND_TO_SHARES = frozenset({"fifo", "lifo"})  # sequences whose order does not depend on users' holdings
_BLIND_TO_THE_PAST = _BLIND_TO_SHARES | {"drf"}


@dataclass(frozen=True, slots=True)
class GroupReading:
    """The snapshot of a group. ``broken``: the ids of pending sessions that cannot be read, with the errors.
    ``is_partial``: more sessions are pending than one pass considers. ``stand_ins``: pending sessions of the snapshot
    that stand for many, by id, with their number."""

    snapshot: Snapshot
    broken: tuple[tuple[UUID, Exception], ...] = ()
    is_partial: bool = False
    stand_ins: Mapping[UUID, int] = field(default_factory=dict)

    @property
    def looked_at(self) -> list[UUID]:
        """The ids of the pending sessions that this pass considers."""
        return [*(session.id for session in self.snapshot.pending), *(pk for pk, _ in self.broken)]


def read_snapshot(group: ResourceGroup, now: datetime, *, even_if_idle: bool = False) -> Snapshot:
    """Return the group at ``now``, without sessions that cannot be read.

    If nothing is pending, agents are read only with ``even_if_idle``. A fixed number of queries.
    """
    return read_group(group, now, even_if_idle=even_if_idle).snapshot


def read_for(newcomers: Sequence[Newcomer], group: ResourceGroup, now: datetime) -> GroupReading:
    """Return the group with these sessions, which are not launched yet, and without most of its queue (``front.py``). A
    fixed number of queries."""
    front = Front(group, now, newcomers, by_holder=group.sequence not in _BLIND_TO_SHARES)
    return _read(group, rules_of(group), front.queue, now, front)


def read_group(group: ResourceGroup, now: datetime, *, even_if_idle: bool = False) -> GroupReading:
    """Return the scheduler's snapshot of the group, and the ids of sessions that cannot be read, with the errors. Same
    parameters as ``read_snapshot``."""
    queue, rules = read_queue(group, now), rules_of(group)
    if queue is None and not even_if_idle:
        return GroupReading(Snapshot(now=now, group=group.name, agents=(), pending=(), rules=rules))
    return _read(group, rules, queue, now)


def _read(
    group: ResourceGroup, rules: Rules, queue: Queue | None, now: datetime, front: Front | None = None
) -> GroupReading:
    rows = read_agent_rows(group)
    made_here = queue.built_here if queue else {}
    short = queue is not None and any(not row.fetches for row in rows)
    there = images_there(rows, made_here, queue.fetched if queue and short else ())
    builds = builds_of(made_here, rows, there)
    sessions, broken = queue.views(builds, somewhere_short=short) if queue else ((), ())
    mounts = queue is not None and queue.mounts_folders
    agents = read_agents(group, rows, there, queue.launches if queue else (), with_storage=mounts)
    by_shares, by_past = rules.sequence not in _BLIND_TO_SHARES, rules.sequence not in _BLIND_TO_THE_PAST
    limits = read_limits({session.holder for session in sessions})
    rest = front.stand_ins(sessions, rules, now) if front else {}
    sessions = (*sessions, *rest)
    holders = {session.holder for session in sessions}
    snapshot = Snapshot(
        now=now,
        group=group.name,
        agents=agents,
        pending=sessions,
        rules=rules,
        limits=limits,
        held=read_held(group) if by_shares else {},
        weights=read_weights(holders) if by_shares else {},
        past_usage=read_past_usage(group, holders, _capacity(agents), now) if by_past else {},
        running=read_running(group) if rules.backfill else (),
        networks=Networks(*networks_left()) if any(map(needs_network, sessions)) else None,
    )
    counts = {view.id: number for view, number in rest.items()}
    return GroupReading(snapshot, broken, queue is not None and queue.is_partial, counts)


def _capacity(agents: Iterable[AgentView]) -> Slots:
    """Return the total capacity of the agents that take sessions."""
    total: Counter[str] = Counter()
    for agent in agents:
        if agent.alive and agent.schedulable:
            total.update(dict(agent.capacity))
    return Slots(total)


def rules_of(group: ResourceGroup) -> Rules:
    """Return the group's scheduling rules in the scheduler's form."""
    return Rules(
        sequence=group.sequence,
        selection=group.selection,
        slot_order=tuple(group.slot_order) or SLOT_ORDER,
        retries_to_skip=group.retries_to_skip,
        overtaking_limit=group.overtaking_limit,
        backfill=group.backfill,
        session_types=frozenset(group.allowed_session_types),
        fill_devices=group.device_allocation == ResourceGroup.Devices.FILL,
        allow_fragmentation=group.allow_fragmentation,
        next_agent=group.next_agent,
    )


def read_held(group: ResourceGroup) -> dict[str, Slots]:
    """Return the amounts that each user's sessions hold in this group, by ``user:<id>``. One query."""
    held: dict[str, dict[str, int]] = defaultdict(dict)
    counted = {"kernel__session__session_type__in": kinds_with("counts")}
    rows = Allocation.objects.of_live().filter(kernel__session__resource_group=group, **counted)
    columns = rows.values_list("kernel__session__owner_id", "slot").annotate(total=Sum("amount")).order_by()
    for owner, slot, total in columns:
        held[f"user:{owner}"][slot] = total
    return {key: Slots(amounts) for key, amounts in held.items()}


def read_running(group: ResourceGroup) -> tuple[RunningView, ...]:
    """Return the placed sessions of this group with their allocations and latest ends. For a session that is starting,
    the latest end includes the longest start that the group allows. Four queries."""
    placed = ComputeSession.objects.live().filter(resource_group=group, status__in=PLACED).order_by("pk")
    amounts: dict[tuple[UUID, UUID], dict[str, int]] = defaultdict(dict)
    held = Allocation.objects.filter(kernel__session__in=placed.values("pk").order_by())
    by_agent = held.values_list("kernel__session_id", "agent_id", "slot").annotate(total=Sum("amount")).order_by()
    for session_id, agent_id, slot, total in by_agent:
        amounts[session_id, agent_id][slot] = total
    kernels = Kernel.objects.filter(session__resource_group=group, status__in=PLACED)
    counts = kernels.values_list("session_id", "agent_id", "agent__slowness").annotate(number=Count("pk"))
    allocations: dict[UUID, list[tuple[UUID, Slots, int]]] = defaultdict(list)
    slowness: dict[UUID, int] = defaultdict(int)
    for session_id, agent_id, slow, number in counts.order_by("session_id"):
        allocations[session_id].append((agent_id, Slots(amounts.get((session_id, agent_id), {})), number))
        slowness[session_id] = max(slowness[session_id], slow or 0)
    rows = list(placed.values_list("pk", "ends_at", "started_at", "scheduled_at"))
    starting = longest_runs([pk for pk, _, started_at, _ in rows if started_at is None])
    views = []
    for pk, ends_at, started_at, scheduled_at in rows:
        if started_at is None:
            before = group.pull_timeout + longest_start(group, slowness[pk])
            ends_at = _later(scheduled_at, starting.get(pk), before)
        views.append(RunningView(pk, tuple(allocations[pk]), ends_at))
    return tuple(views)


def _later(started_at: datetime | None, longest: timedelta | None, before: timedelta) -> datetime | None:
    return started_at + before + longest if started_at and longest else None


LOOKBACK_HALF_LIVES = 4
_KINDS: tuple[tuple[str, Any], ...] = ((USER, User), (PROJECT, Project), (DOMAIN, Domain))
_DAY = timedelta(days=1)


def read_weights(holders: Collection[Holder]) -> dict[str, float]:
    """Return the weights of these users, projects and domains, by key. Weights of 1 are left out. Three queries."""
    wanted = _keys(holders)
    uneven = {
        key_of(scope, pk): weight
        for scope, model in _KINDS
        for pk, weight in model.objects.order_by().exclude(share_weight=1.0).values_list("pk", "share_weight")
    }
    return {key: weight for key, weight in uneven.items() if key in wanted}


def read_past_usage(
    group: ResourceGroup, holders: Collection[Holder], capacity: Slots, now: datetime
) -> dict[str, float]:
    """Return the past usage of holders as a share of the group's capacity, by key.

    Usage is halved for each half-life of its age, and ignored after four. The share is the mean over slots of usage /
    (capacity × period). Holders without usage are missing. One query.
    """
    lookback = group.usage_half_life * LOOKBACK_HALF_LIVES
    wanted = _keys(holders)
    shares: dict[str, float] = defaultdict(float)
    if not wanted or not capacity:
        return {}
    for user, project, domain, slot, used in _decayed(group, now, lookback):
        if capacity[slot] <= 0:
            continue
        share = used * MILLI / (capacity[slot] * lookback.total_seconds()) / len(capacity)
        for key in (key_of(USER, user), key_of(PROJECT, project), key_of(DOMAIN, domain)):
            if key in wanted:
                shares[key] += share
    return dict(shares)


def _keys(holders: Collection[Holder]) -> set[str]:
    return {key for holder in set(holders) for key in (holder.user, holder.project, holder.domain) if key}


def _decayed(group: ResourceGroup, now: datetime, lookback: timedelta) -> Iterator[tuple[Any, ...]]:
    """Yield tuples (user, project, domain, slot, decayed amount × seconds), summed over days by the database."""
    postgres = connection.vendor == "postgresql"
    days = list(_weights_of_days(now, lookback, group.usage_half_life))
    row = "(%s::date, %s::float8)" if postgres else "(%s, %s)"
    statement = (
        f"WITH weights(day, weight) AS (VALUES {', '.join([row] * len(days))}) "  # noqa: S608
        "SELECT user_id, project_id, domain_id, slot, SUM(amount_seconds * weight) "
        "FROM usage_usagebucket JOIN weights ON weights.day = usage_usagebucket.day "
        "WHERE resource_group_id = %s GROUP BY user_id, project_id, domain_id, slot"
    )
    parameters = [value for day, weight in days for value in (day.isoformat(), weight)]
    with connection.cursor() as cursor:
        cursor.execute(statement, [*parameters, group.pk])
        for user, project, domain, slot, used in cursor.fetchall():
            yield _uuid(user), _uuid(project), domain, slot, used


def _weights_of_days(now: datetime, lookback: timedelta, half_life: timedelta) -> Iterator[tuple[date, float]]:
    """Yield each past day with the factor for its usage, computed for the middle of the day."""
    today = now.astimezone(UTC).date()
    day = (now - lookback).astimezone(UTC).date()
    while day <= today:
        begin = datetime.combine(day, time(), UTC)
        middle = begin + (min(begin + _DAY, now) - begin) / 2
        yield day, 0.5 ** ((now - middle) / half_life)
        day += _DAY


def _uuid(value: Any) -> UUID:
    return value if isinstance(value, UUID) else UUID(value)  # SQLite returns ids as text
