"""The ledger of slots: the amounts that each placed kernel holds on its agent. Use is always a sum over rows, so no
counter can drift."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import Count, QuerySet, Sum

from backendai.base.core.slots import Slots, parse_amount
from backendai.base.db.bulk import among, id_of, insert_rows, list_of, listed, raw_id
from backendai.domain.compute.models import Allocation, ComputeSession, Kernel
from backendai.domain.compute.status import PLACED

Devices = dict[str, dict[str, int]]  # slot → device id → thousandths


Amounts = tuple[tuple[str, int], ...]  # slot, thousandths


class Claim(NamedTuple):
    """An allocation to write: kernel, agent and amounts."""

    kernel_id: UUID
    agent_id: UUID
    amounts: Amounts


@lru_cache(maxsize=4096)
def slots_of(text: str) -> Slots:
    """Return the amounts in a slots column's JSON text, from a cache. Raises UserError for an invalid amount,
    ValueError unless it is a JSON object."""
    amounts = json.loads(text)
    if not isinstance(amounts, dict):
        raise ValueError(f"slots are {text[:40]!r}, not a JSON object")
    return Slots.parse(amounts)


@lru_cache(maxsize=4096)
def amounts_of(text: str) -> Amounts:
    """Return the amounts in a slots column's JSON text as pairs, which are faster to iterate than ``slots_of``. Raises
    the same errors."""
    return tuple(slots_of(text).items())


def occupied_by_agent(agent_ids: Collection[UUID] | None = None) -> dict[UUID, Slots]:
    """Return the allocated amounts on each of these agents (None: all agents). Agents without allocations are missing.
    One query."""
    sums: dict[UUID, dict[str, int]] = defaultdict(dict)
    for key, slot, total in _occupied(None if agent_ids is None else list_of(agent_ids)):
        sums[id_of(key)][slot] = total
    return {agent_id: Slots(amounts) for agent_id, amounts in sums.items()}


def held_in_groups(owner_id: UUID) -> dict[int, Slots]:
    """Return the amounts that the owner's sessions hold, by the resource group of their launch. Groups without any are
    missing. One query."""
    rows = Allocation.objects.of_live().filter(kernel__session__owner=owner_id).order_by()
    sums: dict[int, dict[str, int]] = defaultdict(dict)
    columns = rows.values_list("kernel__session__resource_group", "slot")
    for group_id, slot, total in columns.annotate(total=Sum("amount")):
        sums[group_id][slot] = total
    return {group_id: Slots(amounts) for group_id, amounts in sums.items()}


def kernels_by_agent(agent_ids: Collection[UUID]) -> dict[UUID, int]:
    """Return the number of placed kernels on each of these agents, without agents that have none. One query."""
    return {id_of(key): number for key, number in _kernels(list_of(agent_ids))}


def devices_by_agent(agent_ids: Collection[UUID]) -> dict[UUID, Devices]:
    """Return the amounts of devices that placed kernels hold, by agent, slot and device. Agents without held devices
    are missing. One query."""
    taken: dict[UUID, Devices] = {}
    for agent_id, shares in _devices(list_of(agent_ids)):
        of_agent = taken.setdefault(agent_id, {})
        for slot, devices in shares.items():
            of_slot = of_agent.setdefault(slot, {})
            for device, amount in devices.items():
                of_slot[device] = of_slot.get(device, 0) + parse_amount(slot, amount, field="devices")
    return taken


def allocate(claims: Iterable[Claim]) -> None:
    """Write the allocations, in the caller's transaction."""
    columns: dict[str, list[Any]] = {"kernel_id": [], "agent_id": [], "slot": [], "amount": []}
    kernels, agents, slots, numbers = columns.values()
    for kernel_id, agent_id, amounts in claims:
        kernel, agent = kernel_id.hex, agent_id.hex
        for slot, amount in amounts:
            kernels.append(kernel)
            agents.append(agent)
            slots.append(slot)
            numbers.append(amount)
    insert_rows(Allocation._meta.db_table, columns)


def free(kernel_ids: Collection[UUID]) -> None:
    """Delete the allocations of these kernels, in the caller's transaction."""
    if kernel_ids:
        Allocation.objects.filter(kernel__in=among(kernel_ids)).delete()


def _occupied(agents: str | None) -> QuerySet[Any, Any]:
    rows = Allocation.objects.all() if agents is None else Allocation.objects.filter(agent__in=listed(agents))
    columns = rows.annotate(agent_key=raw_id("agent_id")).values_list("agent_key", "slot")
    sums: QuerySet[Any, Any] = columns.annotate(total=Sum("amount")).order_by()
    return sums


def _placed_on(agents: str) -> QuerySet[Any]:
    rows: QuerySet[Any] = Kernel.objects.filter(agent__in=listed(agents), status__in=PLACED).order_by()
    return rows


def _kernels(agents: str) -> QuerySet[Any, Any]:
    rows = _placed_on(agents).annotate(agent_key=raw_id("agent_id")).values_list("agent_key")
    numbers: QuerySet[Any, Any] = rows.annotate(number=Count("pk"))
    return numbers


def _devices(agents: Any) -> QuerySet[Any, Any]:
    return _placed_on(agents).exclude(devices={}).values_list("agent_id", "devices")


def lock_sessions_of(kernel_ids: Collection[UUID]) -> None:
    """Lock the sessions of these kernels until the transaction ends. SQLite needs no lock, as it has only one
    writer."""
    if connection.features.has_select_for_update:
        sessions = Kernel.objects.filter(pk__in=among(kernel_ids)).order_by().values("session")
        held = ComputeSession.objects.filter(pk__in=sessions).order_by("pk").select_for_update(no_key=True)
        list(held.values_list("pk"))


def lock_pending(session_ids: Collection[UUID]) -> set[UUID]:
    """Lock the rows of the pending ones among these sessions, and return their ids. The locks are held until the
    transaction ends."""
    rows = ComputeSession.objects.pending().filter(pk__in=among(session_ids)).order_by("pk")
    return set(rows.select_for_update(no_key=True).values_list("pk", flat=True)) if session_ids else set()
