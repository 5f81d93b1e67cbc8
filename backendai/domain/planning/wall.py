"""Reads what the wall shows: agents device by device, the queue, and recent waits, launches and ends.

Each function takes a fixed number of queries and returns a bounded number of rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Avg, Case, Count, DurationField, Exists, ExpressionWrapper, F, Max, OuterRef, Value, When
from django.db.models.functions import Coalesce, TruncMinute

from backendai.base.db.bulk import among
from backendai.domain.accounts.models import User
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.services.status.ledger import occupied_by_agent
from backendai.domain.compute.status import Status
from backendai.domain.planning.cluster_now import IDLE_BELOW

MOST_AGENTS, MOST_CELLS, MOST_QUEUED, MOST_EVENTS = 400, 32, 24, 12
_MOST_HOLDERS = MOST_AGENTS * MOST_CELLS
_HOUR, _LATELY = timedelta(hours=1), timedelta(days=1)
_ANSWERING = (Agent.Status.ALIVE, Agent.Status.DRAINING)


class CellState(StrEnum):
    """The state of a device. IDLE: allocated, but nearly unused. RESERVED: allocated to a session that starts or
    ends."""

    FREE = "free"
    BUSY = "busy"
    IDLE = "idle"
    RESERVED = "reserved"
    UNHEALTHY = "unhealthy"


class Holder(NamedTuple):
    """The owner and the project of sessions. Both are empty if the user may not see these sessions."""

    owner: str
    project: str


class Cell(NamedTuple):
    """A device, or the processors or the memory of an agent without devices. ``use``: per cent, None if unknown."""

    slot: str
    state: CellState
    use: int | None = None
    holder: Holder | None = None


@dataclass(frozen=True, slots=True)
class Tile:
    """An agent. ``cells``: at most ``MOST_CELLS``; ``left_out``: the number of further devices. ``kernels``: the number
    of its kernels by holder."""

    agent: Agent
    cells: list[Cell]
    left_out: int
    kernels: Mapping[Holder, int]


class Queued(NamedTuple):
    """A pending session in its group's order. ``session`` is None if the user may not see it."""

    group: str
    position: int | None
    since: datetime
    session: ComputeSession | None


class Waits(NamedTuple):
    """The waits of the sessions launched in the last hour, in seconds, up to now for pending ones. ``means``: by five
    minutes, the oldest first."""

    launched: int
    mean: float
    longest: float
    means: list[float]


class Event(NamedTuple):
    """A change of a visible session: ``launched``, ``started`` or ``ended``."""

    at: datetime
    what: str
    session: ComputeSession


def tiles_for(user: User) -> list[Tile]:
    """Return the first ``MOST_AGENTS`` agents of the groups that the user may use. Names only holders that the user may
    see. Four queries."""
    agents = list(
        Agent.objects.registered()
        .filter(resource_group__in=ResourceGroup.objects.visible_to(user))
        .select_related("resource_group")
        .only("name", "status", "schedulable", "fault", "unknown_running", "revoked_at", "drain_started_at", "devices",
              "live", "resource_group__name")
        .order_by("resource_group__name", "name")[:MOST_AGENTS]
    )  # fmt: skip
    ids = [agent.pk for agent in agents]
    placed = Kernel.objects.placed().filter(agent__in=among(ids)).order_by()
    columns = ("agent_id", _seen(user, "session__owner__email"), _seen(user, "session__project__name"))
    kernels: dict[UUID, dict[Holder, int]] = defaultdict(dict)
    for agent_id, owner, project, number in placed.values_list(*columns).annotate(number=Count("pk"))[:_MOST_HOLDERS]:
        kernels[agent_id][Holder(owner, project)] = number
    taken: dict[UUID, dict[str, tuple[str, Holder]]] = defaultdict(dict)
    for agent_id, owner, project, status, devices in (
        placed.exclude(devices={}).values_list(*columns, "status", "devices")[:_MOST_HOLDERS]
    ):  # fmt: skip
        for device in (name for of_slot in devices.values() for name in of_slot):
            taken[agent_id][device] = status, Holder(owner, project)
    occupied = occupied_by_agent(ids)
    tiles = []
    for agent in agents:
        held = occupied.get(agent.pk)
        cells = list(_devices(agent, taken[agent.pk])) or [
            _part(agent, slot, bool(held and held[slot])) for slot in ("cpu", "mem")
        ]
        tiles.append(Tile(agent, cells[:MOST_CELLS], max(0, len(cells) - MOST_CELLS), kernels[agent.pk]))
    return tiles


def queue_for(user: User) -> tuple[list[Queued], int]:
    """Return the first ``MOST_QUEUED`` pending sessions of the groups that the user may use, the next of each group
    first, and the number of all. Two queries."""
    groups = ResourceGroup.objects.visible_to(user)
    pending = ComputeSession.objects.pending().filter(resource_group__in=groups)
    visible = ComputeSession.objects.visible_to(user).filter(pk=OuterRef("pk"))
    rows = pending.annotate(is_seen=Exists(visible)).select_related("resource_group", "owner", "start_forecast").only(
        "name", "status", "status_reason", "status_message", "status_data", "starts_at", "created_at", "changed_at",
        "retries", "queue_position", "owner__email", "resource_group__name", "resource_group__pending_timeout",
        "start_forecast__expected",
    )  # fmt: skip
    order = (F("queue_position").asc(nulls_last=True), "resource_group__name", "-priority", "created_at", "pk")
    queued = [
        Queued(row.resource_group.name, row.queue_position, row.created_at, row if row.is_seen else None)
        for row in rows.order_by(*order)[:MOST_QUEUED]
    ]
    return queued, pending.count()


def waits_for(user: User, now: datetime) -> Waits:
    """Return the waits of the last hour in the groups that the user may use. Sessions with a start time of their own do
    not count. One query, at most 61 rows."""
    rows = ComputeSession.objects.filter(
        created_at__gt=now - _HOUR, starts_at=None, resource_group__in=ResourceGroup.objects.visible_to(user)
    )
    begun = Coalesce("scheduled_at", "ended_at", Value(now))
    wait = ExpressionWrapper(begun - F("created_at"), output_field=DurationField())
    by_minute = rows.order_by().values_list(TruncMinute("created_at"))
    minutes = by_minute.annotate(number=Count("pk"), mean=Avg(wait), longest=Max(wait))
    numbers, sums, longest = [0] * 12, [0.0] * 12, timedelta()
    for minute, number, mean, most in minutes:
        place = 11 - min(11, int((now - minute).total_seconds() // 300))
        numbers[place] += number
        sums[place] += number * mean.total_seconds()
        longest = max(longest, most)
    total = sum(numbers)
    means = [spent / max(1, number) for spent, number in zip(sums, numbers, strict=True)]
    return Waits(total, sum(sums) / max(1, total), longest.total_seconds(), means)


def events_for(user: User, now: datetime) -> list[Event]:
    """Return the newest launches, starts and ends of visible sessions in the last day, the newest first. Two queries,
    each along an index."""
    visible = ComputeSession.objects.visible_to(user).select_related("owner").only(
        "name", "status", "session_type", "result", "created_at", "started_at", "ended_at", "owner__email",
    )  # fmt: skip
    newest = visible.filter(created_at__gt=now - _LATELY).order_by("-created_at", "-pk")[:MOST_EVENTS]
    ended = visible.finished().filter(ended_at__gt=now - _LATELY).order_by("-ended_at", "-pk")[:MOST_EVENTS]
    events = [Event(one.created_at, "launched", one) for one in newest]
    events += [Event(one.started_at, "started", one) for one in newest if one.started_at]
    events += [Event(one.ended_at, "ended", one) for one in ended]
    return sorted(events, key=lambda event: event.at, reverse=True)[:MOST_EVENTS]


def _seen(user: User, column: str) -> Case:
    """Return an expression for a column of a kernel's session: empty if the user may not see the session."""
    visible = ComputeSession.objects.visible_to(user).filter(pk=OuterRef("session_id"))
    return Case(When(Exists(visible), then=F(column)), default=Value(""))


def _devices(agent: Agent, taken: Mapping[str, tuple[str, Holder]]) -> Iterator[Cell]:
    """Yield the agent's devices by slot, the offered ones first, then those that have failed."""
    said: dict[str, dict[str, Any]] = agent.live.get("devices") or {}
    offered = {device: slot for slot, devices in sorted(agent.devices.items()) for device in devices}
    for device, slot in offered.items():
        told = said.get(device, {})
        use = _whole(told.get("util_pct")) if agent.status in _ANSWERING else None
        status, holder = taken.get(device, ("", None))
        healthy = told.get("healthy", True)
        yield Cell(slot, _state(status, use) if healthy else CellState.UNHEALTHY, use, holder)
    for device, told in said.items():
        if device not in offered:
            yield Cell(told.get("slot") or "", CellState.UNHEALTHY)


def _part(agent: Agent, slot: str, is_held: bool) -> Cell:
    """Return the processors or the memory of an agent, with the use of the whole machine."""
    live = agent.live if agent.status in _ANSWERING else {}
    used, total = (live.get("cpu_pct"), 100) if slot == "cpu" else (live.get("mem_used"), live.get("mem_total"))
    use = _whole(100 * used / total) if used is not None and total else None
    return Cell(slot, _state(Status.RUNNING if is_held else "", use), use)


def _state(status: str, use: int | None) -> CellState:
    if not status:
        return CellState.FREE
    if status != Status.RUNNING:
        return CellState.RESERVED
    return CellState.IDLE if use is not None and use < 100 * IDLE_BELOW else CellState.BUSY


def _whole(percent: float | None) -> int | None:
    return None if percent is None else max(0, min(100, round(percent)))
