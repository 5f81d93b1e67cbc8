"""Reads a resource group from the database as a scheduler snapshot, with a fixed number of queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from backendai.base.core.slots import Slots
from backendai.domain.accounts.policies.applicable import limited_holders
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.services.placing.cluster_networks import networks_left
from backendai.domain.compute.services.requests.limits import limit_views
from backendai.domain.planning.agents import builds_of, images_there, read_agent_rows, read_agents
from backendai.domain.planning.amounts.holdings import read_held, read_running
from backendai.domain.planning.fairness import read_past_usage, read_weights
from backendai.domain.planning.queue import Newcomer, read_queue
from backendai.scheduler.gates import needs_network
from backendai.scheduler.snapshot import SLOT_ORDER, AgentView, Holder, LimitView, Networks, Rules, Snapshot


def read_limits(holders: Collection[Holder]) -> dict[str, LimitView]:
    """Return the limits of the holders that have a policy, by key. Four queries; one if no holder has a policy."""
    return limit_views(limited_holders({key for holder in set(holders) for key in holder.keys}))


_BLIND_TO_SHARES = frozenset({"fifo", "lifo"})  # sequences whose order does not depend on users' holdings
_BLIND_TO_THE_PAST = _BLIND_TO_SHARES | {"drf"}


@dataclass(frozen=True, slots=True)
class GroupReading:
    """The snapshot of a group. ``broken``: the ids of pending sessions that cannot be read, with the errors.
    ``is_partial``: more sessions are pending than one pass considers."""

    snapshot: Snapshot
    broken: tuple[tuple[UUID, Exception], ...] = ()
    is_partial: bool = False

    @property
    def looked_at(self) -> list[UUID]:
        """The ids of the pending sessions that this pass considers."""
        return [*(session.id for session in self.snapshot.pending), *(pk for pk, _ in self.broken)]


def read_snapshot(
    group: ResourceGroup, now: datetime, *, even_if_idle: bool = False, newcomers: Sequence[Newcomer] = ()
) -> Snapshot:
    """Return the group at ``now``, without sessions that cannot be read.

    If nothing is pending, agents are read only with ``even_if_idle``. ``newcomers``: sessions before their launch,
    which are included. A fixed number of queries.
    """
    return read_group(group, now, even_if_idle=even_if_idle, newcomers=newcomers).snapshot


def read_group(
    group: ResourceGroup, now: datetime, *, even_if_idle: bool = False, newcomers: Sequence[Newcomer] = ()
) -> GroupReading:
    """Return the scheduler's snapshot of the group, and the ids of sessions that cannot be read, with the errors. Same
    parameters as ``read_snapshot``."""
    queue = read_queue(group, now, newcomers)
    rules = rules_of(group)
    if queue is None and not even_if_idle:
        return GroupReading(Snapshot(now=now, group=group.name, agents=(), pending=(), rules=rules))
    rows = read_agent_rows(group)
    made_here = queue.built_here if queue else {}
    short = queue is not None and any(not row.fetches for row in rows)
    there = images_there(rows, made_here, queue.fetched if queue and short else ())
    builds = builds_of(made_here, rows, there)
    sessions, broken = queue.views(builds, somewhere_short=short) if queue else ((), ())
    mounts = queue is not None and queue.mounts_folders
    agents = read_agents(group, rows, there, queue.launches if queue else (), with_storage=mounts)
    holders = {session.holder for session in sessions}
    by_shares, by_past = rules.sequence not in _BLIND_TO_SHARES, rules.sequence not in _BLIND_TO_THE_PAST
    snapshot = Snapshot(
        now=now,
        group=group.name,
        agents=agents,
        pending=sessions,
        rules=rules,
        limits=read_limits(holders),
        held=read_held(group) if by_shares else {},
        weights=read_weights(holders) if by_shares else {},
        past_usage=read_past_usage(group, holders, _capacity(agents), now) if by_past else {},
        running=read_running(group) if rules.backfill else (),
        networks=Networks(*networks_left()) if any(map(needs_network, sessions)) else None,
    )
    return GroupReading(snapshot, broken, is_partial=queue is not None and queue.is_partial)


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
        options=group.strategy_options,
    )
