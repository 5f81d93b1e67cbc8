"""Ends that take too long: forced on a node that answers, unconfirmed and said so on one that does not."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import F, QuerySet

from backendai.cluster.models import Agent
from backendai.compute.models import ComputeSession, Kernel
from backendai.compute.services.bulk import update_returning
from backendai.compute.services.ending import hint_stops
from backendai.compute.services.history import Entry, write_history
from backendai.compute.services.moves import touch
from backendai.compute.status import Outcome, Phase, Status
from backendai.core.durations import describe_duration

_MOST_AT_ONCE = 1000


def force_ends(now: datetime) -> int:
    """Have kernels killed whose end is overdue, or note that nobody can confirm it; returns how many kernels. Each is
    said once."""
    answering = Agent.objects.answering()
    ending = Kernel.objects.filter(status=Status.TERMINATING)
    ending.filter(is_unconfirmed=True, agent__in=answering).update(is_unconfirmed=False)  # its node is back
    overdue = ending.filter(changed_at__lt=now - F("session__resource_group__terminate_timeout"))
    forced = _mark(overdue.filter(agent__in=answering, forced_at=None), now, forced_at=now)
    silent = overdue.exclude(agent__in=answering).filter(is_unconfirmed=False)
    return forced + _mark(silent, now, is_unconfirmed=True)


def _mark(kernels: QuerySet[Kernel], now: datetime, **columns: object) -> int:
    """Set the columns and write one row for each session; only what this call changed is told."""
    candidates = list(kernels.values_list("pk", flat=True)[:_MOST_AT_ONCE])
    if not candidates:
        return 0
    with transaction.atomic():
        conditions = {name: None if name == "forced_at" else False for name in columns}
        still = Kernel.objects.filter(pk__in=candidates, status=Status.TERMINATING, **conditions)
        marked = [UUID(str(pk)) for (pk,) in update_returning(still, columns, ("id",))]
        _tell(Kernel.objects.filter(pk__in=marked), now, forced="forced_at" in columns)
    return len(marked)


def _tell(marked: QuerySet[Kernel], now: datetime, *, forced: bool) -> None:
    told: dict[UUID, tuple[str, str]] = {}
    rows = marked.order_by("rank").values_list(
        "session_id", "hostname", "agent__name", "changed_at", "session__resource_group__terminate_timeout"
    )
    for session_id, hostname, agent, since, limit in rows:
        waited, allowed = describe_duration(now - since), describe_duration(limit)
        if forced:
            text = f"Node {agent} has not ended {hostname} for {waited}; the limit is {allowed}. It is killed now."
            told.setdefault(session_id, ("terminate-timeout", text))
        else:
            text = (
                f"Node {agent} does not answer and has not confirmed the end of {hostname} for {waited}; it may still "
                "run there, so its resources stay taken."
            )
            told.setdefault(session_id, ("end-unconfirmed", text))
    touch(list(told))  # holds the sessions still, so that their rows chain
    statuses = dict(ComputeSession.objects.filter(pk__in=told).values_list("pk", "status"))
    for status in set(statuses.values()):
        entries = [Entry(pk, status, Outcome.EXPIRED, *told[pk]) for pk, at in statuses.items() if at == status]
        write_history(entries, Phase.TERMINATE, status, now=now)
    if forced:
        hint_stops(told)
