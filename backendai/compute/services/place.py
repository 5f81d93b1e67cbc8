"""Carrying out the scheduler's placements: status, agents and ledger in one transaction, hints after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F

from backendai.cluster.models import Agent
from backendai.compute.models import Kernel
from backendai.compute.services.bulk import set_column_by_id
from backendai.compute.services.ledger import Claim, allocate, occupied_by_agent
from backendai.compute.services.moves import Why, move
from backendai.compute.status import Phase, Status
from backendai.core.slots import Slots
from backendai.wire.broker import hint_on_commit
from backendai.wire.queues import node_queue


@dataclass(frozen=True, slots=True)
class Assignment:
    """Start this session: an agent for every kernel, and what the scheduler looked at on the way."""

    session_id: UUID
    kernels: Mapping[UUID, UUID]
    steps: list[dict[str, Any]] = field(default_factory=list)


def place_sessions(group_id: int, assignments: Sequence[Assignment], *, now: datetime) -> set[UUID]:
    """Move sessions to SCHEDULED with their allocations and return those that were placed.

    Capacity is checked again here, under the group's lock: a plan made from an old picture cannot overfill an agent.
    """
    if not assignments:
        return set()
    with transaction.atomic():
        lock_group(group_id)
        kernels = _pending_kernels(assignments)
        fitting = _still_fitting(assignments, kernels)
        steps = {assignment.session_id: assignment.steps for assignment in fitting}
        moved = move(steps.keys(), Status.SCHEDULED, Why(Phase.SCHEDULE, steps=steps), now=now)
        agent_of = {
            kernel_id: agent_id
            for assignment in fitting
            if assignment.session_id in moved
            for kernel_id, agent_id in assignment.kernels.items()
        }
        _assign(agent_of, now)
        allocate(Claim(kernel_id, agent_id, kernels[kernel_id]) for kernel_id, agent_id in agent_of.items())
        hint_starts(agent_of.keys())
    return moved


def lock_group(group_id: int) -> None:
    """Hold the group's placements still until the transaction ends (SQLite: the write transaction itself does)."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_PLACEMENT_LOCK, group_id])


_PLACEMENT_LOCK = 0x62616931  # any number that nobody else uses in this database


def hint_starts(kernel_ids: Any) -> None:
    """Tell the nodes of these kernels to start them, after commit."""
    rows = Kernel.objects.filter(pk__in=list(kernel_ids)).values_list("pk", "generation", "agent__name")
    for kernel_id, generation, agent in rows:
        hint_on_commit("node.start_kernel", str(kernel_id), generation, queue=node_queue(agent))


def _pending_kernels(assignments: Sequence[Assignment]) -> dict[UUID, Slots]:
    sessions = [assignment.session_id for assignment in assignments]
    rows = Kernel.objects.filter(session__in=sessions, status=Status.PENDING).values_list("pk", "slots")
    return {kernel_id: Slots.parse(slots) for kernel_id, slots in rows}


def _still_fitting(assignments: Sequence[Assignment], kernels: Mapping[UUID, Slots]) -> list[Assignment]:
    agent_ids = {agent_id for assignment in assignments for agent_id in assignment.kernels.values()}
    agents = Agent.objects.filter(pk__in=agent_ids, status=Agent.Status.ALIVE, schedulable=True)
    occupied = occupied_by_agent(agent_ids)
    free = {agent.pk: agent.slots - occupied.get(agent.pk, Slots()) for agent in agents}
    fitting = []
    for assignment in assignments:
        wanted: dict[UUID, Slots] = {}
        for kernel_id, agent_id in assignment.kernels.items():
            wanted[agent_id] = wanted.get(agent_id, Slots()) + kernels.get(kernel_id, Slots())
        known = all(kernel_id in kernels for kernel_id in assignment.kernels)
        if known and all(slots.fits(free.get(agent_id, Slots())) for agent_id, slots in wanted.items()):
            fitting.append(assignment)
            free |= {agent_id: free[agent_id] - slots for agent_id, slots in wanted.items()}
    return fitting


def _assign(agent_of: Mapping[UUID, UUID], now: datetime) -> None:
    # The sessions were just moved by this transaction, so their kernels are ours to change.
    set_column_by_id("compute_kernel", "agent_id", "uuid", list(agent_of.items()), id_cast="uuid")
    Kernel.objects.filter(pk__in=agent_of.keys()).update(
        status=Status.SCHEDULED,
        generation=F("generation") + 1,
        status_reason="",
        status_message="",
        exit_code=None,
        container_id="",
        changed_at=now,
    )
