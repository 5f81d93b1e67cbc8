"""Reads from the ledger the amounts that users and sessions hold in one resource group."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Count, Sum

from backendai.base.core.session_kinds import kinds_with
from backendai.base.core.slots import Slots
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.cluster.time_limits import longest_start
from backendai.domain.compute.models import Allocation, ComputeSession, Kernel
from backendai.domain.compute.services.life.lifetimes import longest_runs
from backendai.domain.compute.status import PLACED
from backendai.scheduler.snapshot import RunningView


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
    rows = list(placed.values_list("pk", "ends_at", "is_end_moved", "started_at", "scheduled_at", "batch_timeout"))
    starting = longest_runs([pk for pk, _, _, started_at, _, _ in rows if started_at is None])
    views = []
    for pk, ends_at, is_moved, started_at, scheduled_at, batch_timeout in rows:
        if started_at is None:
            before = group.pull_timeout + longest_start(group, slowness[pk])
            ends_at = _later(scheduled_at, starting.get(pk), before)
        elif ends_at is None and not is_moved:  # started by an older version
            ends_at = _later(started_at, batch_timeout)
        views.append(RunningView(pk, tuple(allocations[pk]), ends_at))
    return tuple(views)


def _later(started_at: datetime | None, longest: timedelta | None, before: timedelta = timedelta(0)) -> datetime | None:
    return started_at + before + longest if started_at and longest else None
