"""Computes the superadmin's overview: largest users, longest waits, idle accelerators, agents with problems."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, Sum

from backendai.base.core.slots import Slots
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Allocation, ComputeSession
from backendai.domain.compute.status import Status
from backendai.domain.usage.samples import latest

_MOST, _MOST_LOOKED_AT, _MOST_PROBLEMS, _MOST_TROUBLED = 5, 200, 8, 1000
_COMMON = ("cpu", "mem")
IDLE_BELOW = 0.05  # a share of the kernel's allocation


@dataclass(frozen=True, slots=True)
class Problem:
    """A kind of problem (``lost``, ``refused``, ``low-disk``, ``unknown-kernels``, ``note``) and the agents that have
    it, by name. ``message``: of a note, as the first agent says it."""

    kind: str
    agents: list[Agent]
    message: str = ""


@dataclass(frozen=True, slots=True)
class ClusterNow:
    """The superadmin's overview, with at most ``_MOST`` entries of each kind. ``users``: e-mail addresses with their
    holdings. ``waiting``: the sessions that have been pending longest. ``idle``: sessions with unused accelerators,
    sought among the ``_MOST_LOOKED_AT`` oldest. ``problems``: what is wrong with agents, each kind once."""

    users: list[tuple[str, Slots]]
    waiting: list[ComputeSession]
    idle: list[ComputeSession]
    problems: list[Problem]


def cluster_now() -> ClusterNow:
    """Return the overview of the cluster, in five or six queries."""
    sessions: Any = ComputeSession.objects.select_related("owner", "resource_group")
    waiting = sessions.filter(status=Status.PENDING).order_by("created_at", "pk")
    return ClusterNow(_users(), list(waiting[:_MOST]), _idle(sessions), _problems()[:_MOST_PROBLEMS])


def _problems() -> list[Problem]:
    """Return what is wrong with agents, urgent kinds first, then the notes of most agents. Looks at the first
    ``_MOST_TROUBLED`` agents with a problem. One query."""
    wrong = Q(status=Agent.Status.LOST) | Q(revoked_at__isnull=False) | Q(low_disk=True) | Q(unknown_kernels__gt=0)
    rows = Agent.objects.registered().filter(wrong | ~Q(notes=[])).order_by("name")
    found: dict[str, list[Agent]] = {"lost": [], "refused": [], "low-disk": [], "unknown-kernels": []}
    noted: dict[str, Problem] = {}
    for agent in rows.only("name", "status", "revoked_at", "low_disk", "unknown_kernels", "notes")[:_MOST_TROUBLED]:
        has = (agent.status == Agent.Status.LOST, agent.revoked_at, agent.low_disk, agent.unknown_kernels)
        for kind in (kind for kind, is_so in zip(found, has, strict=True) if is_so):
            found[kind].append(agent)
        for code, message in {note["code"]: note["message"] for note in agent.notes}.items():
            noted.setdefault(code, Problem("note", [], message)).agents.append(agent)
    notes = sorted(noted.values(), key=lambda problem: -len(problem.agents))
    return [*(Problem(kind, agents) for kind, agents in found.items() if agents), *notes]


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
    return bool(used) and max(used) < IDLE_BELOW
