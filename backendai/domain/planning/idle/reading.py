"""Reads the input of the idle policy: running sessions, rules, traffic, measured use and earlier warnings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.db.models import Q

from backendai.base.db.bulk import among
from backendai.domain.cluster.idle.checkers import read_holding
from backendai.domain.cluster.models import Agent, Reachability
from backendai.domain.compute.models import ComputeSession, IdleWarning, Kernel
from backendai.domain.compute.status import Status
from backendai.domain.usage.samples import averages
from backendai.scheduler.find_idle import Finding, Recorded, Rule, Use, Watched, find_idle

_ANSWERING = (Agent.Status.ALIVE, Agent.Status.DRAINING)


class Row(NamedTuple):
    """The columns of one running session."""

    id: UUID
    session_type: str
    group_id: int
    project_id: UUID
    started_at: datetime
    last_traffic: datetime | None


@dataclass(frozen=True, slots=True)
class IdleReading:
    """The results of the idle checkers. ``warned``: the ids of earlier warnings. ``without_traffic``: sessions without
    any recorded traffic, although a rule needs it."""

    now: datetime
    findings: list[Finding]
    warned: list[UUID]
    without_traffic: list[UUID]


def check_idle(now: datetime, *, only: Collection[UUID] | None = None) -> IdleReading:
    """Return the results of the idle checkers for all running sessions, or for the sessions in ``only``. At most eight
    queries, and two more for each averaging period, for any number of sessions."""
    holding = read_holding()
    recorded = _recorded(only)
    warned = [one.id for of_session in recorded.values() for one in of_session.values() if one.warned_at and one.id]
    if not holding.checkers:
        return IdleReading(now, [], warned, [])
    rows = _rows(only)
    rules = {row.id: holding.rules_for(row.session_type, row.group_id, row.project_id) for row in rows}
    rows = [row for row in rows if rules[row.id]]
    uses = _uses(rows, rules, now, everything=only is not None)
    watched = list(_watched(rows, rules, recorded, uses, now))
    without_traffic = [
        one.id for one in watched if one.last_traffic is None and any(rule.kind.needs_traffic for rule in one.rules)
    ]
    return IdleReading(now, list(find_idle(watched, now)), warned, without_traffic)


def _rows(only: Collection[UUID] | None) -> list[Row]:
    rows = ComputeSession.objects.running().filter(started_at__isnull=False)
    rows = rows if only is None else rows.filter(pk__in=among(only))
    columns = ("pk", "session_type", "resource_group_id", "project_id", "started_at", "traffic__last_at")
    return [Row._make(row) for row in rows.order_by("started_at", "pk").values_list(*columns)]


def _recorded(only: Collection[UUID] | None) -> dict[UUID, dict[int | None, Recorded]]:
    rows = IdleWarning.objects.filter(session__status=Status.RUNNING, collected_at=None)
    if only is not None:
        rows = rows.filter(session__in=among(only))
    columns = ("session_id", "checker_id", "sign", "warned_at", "due_at", "extended_until", "pk")
    found: dict[UUID, dict[int | None, Recorded]] = defaultdict(dict)
    for session_id, checker_id, *values in rows.order_by("pk").values_list(*columns):
        found[session_id][checker_id] = Recorded(*values)
    return found


def _watched(
    rows: Collection[Row],
    rules: Mapping[UUID, tuple[Rule, ...]],
    recorded: Mapping[UUID, Mapping[int | None, Recorded]],
    uses: Mapping[UUID, Mapping[int, Use]],
    now: datetime,
) -> Iterable[Watched]:
    away, back = _unreachable(rows)
    reachable_since = _reachable_since(now)
    for row in rows:
        yield Watched(
            id=row.id,
            started_at=row.started_at,
            known_since=max(row.started_at, reachable_since, back.get(row.id, reachable_since)),
            is_reachable=row.id not in away,
            last_traffic=row.last_traffic,
            rules=rules[row.id],
            uses=uses.get(row.id, {}),
            recorded=recorded.get(row.id, {}),
        )


def _reachable_since(now: datetime) -> datetime:
    """Return the time since which the portal has been reachable without a break; ``now`` if unknown. Before that time
    nobody could use a session."""
    row = Reachability.objects.values_list("since", "noted_at").first()
    return row[0] if row and now - row[1] <= 3 * settings.REPAIR_INTERVAL else now


def _unreachable(rows: Collection[Row]) -> tuple[set[UUID], dict[UUID, datetime]]:
    """Return the ids of sessions with a kernel on an unreachable agent; nobody can use them. Also return by session id
    the latest time at which an agent of the session became reachable again."""
    away: set[UUID] = set()
    back: dict[UUID, datetime] = {}
    agents = Agent.objects.filter(~Q(status__in=_ANSWERING) | Q(returned_at__isnull=False))
    if not (ids := list(agents.order_by().values_list("pk", flat=True))):  # the usual case
        return away, back
    placed = Kernel.objects.placed()  # ended kernels do not matter
    found = placed.filter(session__in=among([row.id for row in rows]), agent__in=ids).order_by()
    for session_id, status, returned_at in found.values_list("session_id", "agent__status", "agent__returned_at"):
        if status not in _ANSWERING:
            away.add(session_id)
        if returned_at is not None:
            back[session_id] = max(returned_at, back.get(session_id, returned_at))
    return away, back


def _uses(
    rows: Iterable[Row], rules: Mapping[UUID, tuple[Rule, ...]], now: datetime, *, everything: bool
) -> dict[UUID, dict[int, Use]]:
    """Return the measured use by session and rule, for rules that need it now. ``everything``: also for rules that need
    it later."""
    windows: dict[timedelta, list[tuple[UUID, int]]] = defaultdict(list)
    for row in rows:
        for rule in rules[row.id]:
            if rule.thresholds and (everything or rule.kind.weighs_use(rule, row.started_at, row.last_traffic, now)):
                windows[rule.limit].append((row.id, rule.id))
    found: dict[UUID, dict[int, Use]] = defaultdict(dict)
    for window, pairs in windows.items():
        measured = averages({pk for pk, _ in pairs}, now - window, now)
        for pk, rule_id in pairs:
            if use := measured.get(pk):
                found[pk][rule_id] = Use(use.slots, timedelta(seconds=use.covered_seconds))
    return found
