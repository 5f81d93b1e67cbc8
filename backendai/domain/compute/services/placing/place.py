"""Carries out the scheduler's placements: writes status, agents, devices and ledger in one transaction. Afterwards it
sends hints to the agents."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection, transaction
from django.db.models import TextField
from django.db.models.functions import Cast

from backendai.base.core.slots import decimal_text
from backendai.base.db import advisory_locks
from backendai.base.db.bulk import among, update_rows
from backendai.base.wire.broker.hints import hint_on_commit
from backendai.base.wire.broker.queues import node_queue
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.services.placing.cluster_networks import number_networks
from backendai.domain.compute.services.placing.free_capacity import FreeCapacity, KernelPlacement, Shares
from backendai.domain.compute.services.requests.limits import recheck
from backendai.domain.compute.services.status.history import NO_STEPS
from backendai.domain.compute.services.status.ledger import Amounts, Claim, allocate, amounts_of
from backendai.domain.compute.services.status.moves import StatusCause, move
from backendai.domain.compute.status import Phase, Status

_NO_SHARES: Shares = {}
_NO_DEVICES: Mapping[UUID, Shares] = {}


class Assignment(NamedTuple):
    """A session to place, as the scheduler decided: the agent and devices of each kernel. ``steps``: the scheduler's
    steps, a JSON list as text."""

    session_id: UUID
    kernels: Mapping[UUID, UUID]
    steps: str = NO_STEPS
    devices: Mapping[UUID, Shares] = _NO_DEVICES


class _Pending(NamedTuple):
    """The session, generation and amounts of a pending kernel."""

    session_id: UUID
    generation: int
    amounts: Amounts


def place_sessions(group_id: int, assignments: Sequence[Assignment], *, now: datetime) -> set[UUID]:
    """Move sessions to SCHEDULED with their allocations; returns the ids of the placed sessions. A fixed number of
    statements.

    Capacity and devices are checked again under the group's lock, and limits under their holders' locks. So a plan from
    an outdated snapshot cannot overfill an agent, assign a device twice, or exceed a policy.
    """
    if not assignments:
        return set()
    with transaction.atomic():
        lock_group(group_id)
        kernels = _pending_kernels(assignments)
        agent_ids = {agent_id for assignment in assignments for agent_id in assignment.kernels.values()}
        capacity = FreeCapacity(group_id, agent_ids, with_devices=any(assignment.devices for assignment in assignments))
        placements = _reserve(capacity, assignments, kernels)
        for session_id in recheck(list(placements)):
            del placements[session_id]
        for session_id in number_networks([one for one, of_session in placements.items() if len(of_session) > 1]):
            del placements[session_id]  # the session is placed when another one has freed its network
        steps = {
            assignment.session_id: assignment.steps for assignment in assignments if assignment.session_id in placements
        }
        why = StatusCause(Phase.SCHEDULE, steps=steps)
        moved = move(steps.keys(), Status.SCHEDULED, why, now=now, overtaken_since=None)
        taken = [one for session_id, of_session in placements.items() if session_id in moved for one in of_session]
        _assign(taken, now)
        allocate(Claim(one.kernel_id, one.agent_id, one.amounts) for one in taken)
        _hint_starts(taken, capacity.names)
    return moved


def lock_group(group_id: int) -> None:
    """Lock the group's placements until the transaction ends. SQLite needs no lock, as it has only one writer."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [advisory_locks.PLACEMENT, group_id])


def _pending_kernels(assignments: Sequence[Assignment]) -> dict[UUID, _Pending]:
    sessions = [assignment.session_id for assignment in assignments]
    rows = Kernel.objects.filter(session__in=among(sessions), status=Status.PENDING).order_by()
    return {
        kernel_id: _Pending(session_id, generation, amounts_of(text))
        for kernel_id, session_id, generation, text in rows.values_list(
            "pk", "session_id", "generation", Cast("slots", TextField())
        )
    }


def _reserve(
    capacity: FreeCapacity, assignments: Sequence[Assignment], kernels: Mapping[UUID, _Pending]
) -> dict[UUID, list[KernelPlacement]]:
    """Reserve amounts and devices for the sessions that fit; returns the kernels' placements by session."""
    found = {}
    for assignment in assignments:
        placements = []
        for kernel_id, agent_id in assignment.kernels.items():
            kernel = kernels.get(kernel_id)
            if kernel is None or kernel.session_id != assignment.session_id:
                break
            shares = assignment.devices.get(kernel_id, _NO_SHARES) if assignment.devices else _NO_SHARES
            placements.append(KernelPlacement(kernel_id, agent_id, kernel.amounts, shares, kernel.generation))
        else:
            if capacity.reserve(placements):
                found[assignment.session_id] = placements
    return found


def _assign(placements: Sequence[KernelPlacement], now: datetime) -> None:
    # This transaction has just moved the sessions, so it may change their kernels.
    columns: dict[str, tuple[str, Sequence[Any]]] = {"agent_id": ("uuid", [one.agent_id for one in placements])}
    always = {
        "status": str(Status.SCHEDULED),
        "status_reason": "",
        "status_message": "",
        "exit_code": None,
        "container_id": "",
        "changed_at": now,
    }
    if any(one.shares for one in placements):
        columns["devices"] = ("jsonb", [_shares_text(one.shares) for one in placements])
    else:
        always["devices"] = "{}"
    ids = [one.kernel_id for one in placements]
    update_rows(Kernel._meta.db_table, ids, columns, always=always, counting=["generation"])


def _shares_text(shares: Shares) -> str:
    if not shares:
        return "{}"
    return json.dumps(
        {slot: {device: decimal_text(amount) for device, amount in of.items()} for slot, of in shares.items()}
    )


def _hint_starts(placements: Iterable[KernelPlacement], names: Mapping[UUID, str]) -> None:
    """After commit, send each agent one hint with its kernels to start."""
    starts: dict[UUID, list[list[str | int]]] = defaultdict(list)
    for one in placements:
        starts[one.agent_id].append([str(one.kernel_id), one.generation + 1])
    for agent_id, many in starts.items():
        queue = node_queue(names[agent_id])
        if len(many) == 1:
            kernel, generation = many[0]
            hint_on_commit("node.start_kernel", kernel, generation, queue=queue)
        else:
            hint_on_commit("node.start_kernels", many, queue=queue)
