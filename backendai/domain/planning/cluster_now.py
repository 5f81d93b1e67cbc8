"""Computes the superadmin's overview: largest users, longest waits, idle accelerators, agents with problems."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from django.db.models import Case, Q, Sum, When

from backendai.base.core.slots import Slots
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Allocation, ComputeSession
from backendai.domain.compute.status import Status
from backendai.domain.usage.samples import latest

_MOST, _MOST_LOOKED_AT = 5, 200
_COMMON = ("cpu", "mem")
_IDLE_BELOW = 0.05  # a share of the kernel's allocation


@dataclass(frozen=True, slots=True)
class ClusterNow:
    """The superadmin's overview, with at most ``_MOST`` entries of each kind. ``users``: e-mail addresses with their
    holdings. ``waiting``: the sessions that have been pending longest. ``idle``: sessions with unused accelerators,
    sought among the ``_MOST_LOOKED_AT`` oldest. ``troubled``: agents that are lost, refused, short of disk, or have
    unknown kernels or warnings."""

    users: list[tuple[str, Slots]]
    waiting: list[ComputeSession]
    idle: list[ComputeSession]
    troubled: list[Agent]


def cluster_now() -> ClusterNow:
    """Return the overview of the cluster, in five or six queries."""
    sessions: Any = ComputeSession.objects.select_related("owner", "resource_group")
    waiting = sessions.filter(status=Status.PENDING).order_by("created_at", "pk")
    urgent = Q(status=Agent.Status.LOST) | Q(revoked_at__isnull=False) | Q(low_disk=True) | Q(unknown_kernels__gt=0)
    agents = Agent.objects.registered().filter(urgent | ~Q(notes=[]))
    # Agents with notes come last: notes may stay for long, and must not hide urgent problems.
    troubled = agents.order_by(Case(When(urgent, then=0), default=1), "status", "name")
    return ClusterNow(_users(), list(waiting[:_MOST]), _idle(sessions), list(troubled[:_MOST]))


def _users() -> list[tuple[str, Slots]]:
    """Return the users with the largest holdings. Accelerators are compared first, then cores, then memory."""
    held: dict[str, dict[str, int]] = defaultdict(dict)
    rows = Allocation.objects.order_by().values_list("kernel__session__owner__email", "slot")
    for email, slot, total in rows.annotate(Sum("amount")):
        held[email][slot] = total

    def weight(item: tuple[str, dict[str, int]]) -> tuple[int, int, int, str]:
        email, amounts = item
        accelerators = sum(amount for slot, amount in amounts.items() if slot not in _COMMON)
        return -accelerators, -amounts.get("cpu", 0), -amounts.get("mem", 0), email

    return [(email, Slots(amounts)) for email, amounts in sorted(held.items(), key=weight)[:_MOST]]


def _idle(sessions: Any) -> list[ComputeSession]:
    holding = Allocation.objects.exclude(slot__in=_COMMON).filter(amount__gte=1).values("kernel__session")
    running = sessions.filter(pk__in=holding, status=Status.RUNNING).order_by("started_at", "pk")
    found = {session.pk: session for session in running[:_MOST_LOOKED_AT]}
    samples = latest(list(found)) if found else {}
    idle = [found[pk] for pk in found if pk in samples and _all_idle([each.devices for each in samples[pk].values()])]
    return idle[:_MOST]


def _all_idle(measured: list[dict[str, Any]]) -> bool:
    """Return whether every measured accelerator is idle; False if none was measured."""
    used = [told["util"] for devices in measured for told in devices.values() if told.get("util") is not None]
    return bool(used) and max(used) < _IDLE_BELOW
