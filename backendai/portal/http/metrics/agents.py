"""Metrics of agents: whether they report, what kernels hold of them, and what is used."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Sum

from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Allocation
from backendai.portal.http.metrics.families import Gauge

_BY_AGENT = ("agent", "group")
_BY_SLOT = (*_BY_AGENT, "slot")
_SPEAKING = (Agent.Status.ALIVE, Agent.Status.DRAINING)
_IDLE_BELOW = 5.0  # per cent
_UNIT = "in the unit of the slot (memory: bytes)"


def of_agents(now: datetime) -> Iterator[Gauge]:
    """Yield the families of agents; two queries."""
    reported = ("last_seen_at", "capacity", "low_disk", "live")
    fields = ("name", "resource_group__name", "status", "schedulable", *reported, "pk")
    rows = list(Agent.objects.exclude(status=Agent.Status.TERMINATED).order_by("name").values_list(*fields))
    statuses = sorted(Counter((row[1], row[2]) for row in rows).items())
    yield Gauge("backendai_agents", "Agents by status, without terminated ones.", ("group", "status"), statuses)
    up = [(row[:2], row[2] == Agent.Status.ALIVE) for row in rows]
    yield Gauge("backendai_agent_up", "1 while the agent reports.", _BY_AGENT, up)
    open_ones = [(row[:2], row[3]) for row in rows]
    yield Gauge("backendai_agent_schedulable", "0 while the agent takes no new sessions.", _BY_AGENT, open_ones)
    ages = [(row[:2], max((now - row[4]).total_seconds(), 0.0)) for row in rows if row[4]]
    yield Gauge("backendai_agent_report_age_seconds", "Time since the agent's last report.", _BY_AGENT, ages)
    full = [(row[:2], row[6]) for row in rows]
    yield Gauge("backendai_agent_low_disk", "1 while free disk space is below the reserve.", _BY_AGENT, full)
    slots = [((*row[:2], slot), Decimal(amount)) for row in rows for slot, amount in sorted(row[5].items())]
    yield Gauge("backendai_agent_slots", f"Amount that kernels may take, {_UNIT}.", _BY_SLOT, slots)
    yield _allocated({row[8]: row[:2] for row in rows})
    yield from _measured([(row[:2], row[5], row[7]) for row in rows if row[2] in _SPEAKING])


def _allocated(labels: dict[UUID, tuple[str, str]]) -> Gauge:
    order = ("agent_id", "slot")  # as in the index
    sums = Allocation.objects.order_by(*order).values_list(*order).annotate(Sum("amount"))
    held = [((*labels[agent], slot), Decimal(total) / 1000) for agent, slot, total in sums if agent in labels]
    return Gauge("backendai_agent_slots_allocated", f"Amount that kernels hold, {_UNIT}.", _BY_SLOT, held)


def _measured(rows: list[tuple[Any, dict[str, str], dict[str, Any]]]) -> Iterator[Gauge]:
    """Yield what the agents that report have measured; what a driver does not tell is missing."""
    used: dict[tuple[str, ...], float] = {}
    health, idle = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for agent, capacity, live in rows:
        if (percent := live.get("cpu_pct")) is not None and "cpu" in capacity:
            used[*agent, "cpu"] = percent / 100 * float(capacity["cpu"])
        if (memory := live.get("mem_used")) is not None:
            used[*agent, "mem"] = memory
        shares = defaultdict[tuple[str, ...], float](float)
        for one in (live.get("devices") or {}).values():
            labels = (*agent, one.get("slot") or "")
            is_well = one.get("healthy", True)
            health[*labels, "healthy" if is_well else "unhealthy"] += 1
            if is_well and (percent := one.get("util_pct")) is not None:
                shares[labels] += percent / 100
                idle[labels] += percent < _IDLE_BELOW
        used |= shares
    text = "Use that the machine measured: cores, bytes, or accelerators (two at 50 % are 1)."
    yield Gauge("backendai_agent_slots_used", text, _BY_SLOT, used.items())
    text = "Accelerators of the machine by health; slot is empty for one that sessions cannot get."
    yield Gauge("backendai_agent_devices", text, (*_BY_SLOT, "state"), health.items())
    text = f"Healthy accelerators below {_IDLE_BELOW:g} % of use, free ones included."
    yield Gauge("backendai_agent_idle_devices", text, _BY_SLOT, idle.items())
