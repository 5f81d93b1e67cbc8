"""Checks a last time before a placement that agents have enough free amounts and devices."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from django.db.models import TextField
from django.db.models.functions import Cast

from backendai.base.core.slots import MILLI, Slots
from backendai.base.db.bulk import among
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.services.status.ledger import (
    Amounts,
    devices_by_agent,
    kernels_by_agent,
    occupied_by_agent,
    slots_of,
)

Shares = Mapping[str, Mapping[str, int]]  # slot → device id → thousandths

_ONE_DEVICE = MILLI  # a device counts 1, or 1 whole share


class KernelPlacement(NamedTuple):
    """A kernel with the agent and the devices (``shares``) chosen for it, its amounts and its generation."""

    kernel_id: UUID
    agent_id: UUID
    amounts: Amounts
    shares: Shares
    generation: int


class FreeCapacity:
    """The free amounts and devices of a group's agents, and how many further kernels each can run. Only agents that
    take kernels are included."""

    def __init__(self, group_id: int, agent_ids: Collection[UUID], *, with_devices: bool) -> None:
        rows = Agent.objects.filter(
            pk__in=among(agent_ids), resource_group=group_id, status=Agent.Status.ALIVE, schedulable=True, fault=""
        ).values_list(
            "pk",
            "name",
            Cast("capacity", TextField()),
            "devices",
            "max_kernels",
            "resource_group__max_kernels_per_agent",
        )
        agents = list(rows.order_by())
        open_ids = [row[0] for row in agents]
        occupied = occupied_by_agent(open_ids)
        self.names = {row[0]: row[1] for row in agents}
        self._free = {row[0]: dict(slots_of(row[2]) - occupied.get(row[0], Slots())) for row in agents}
        self._devices = {row[0]: row[3] for row in agents}
        self._taken = devices_by_agent(open_ids) if with_devices else {}
        limits = {pk: of_group if own is None else own for pk, _, _, _, own, of_group in agents}
        most = {pk: limit for pk, limit in limits.items() if limit is not None}
        counts = kernels_by_agent(most.keys()) if most else {}
        self._kernels_left = {pk: number - counts.get(pk, 0) for pk, number in most.items()}

    def reserve(self, placements: Sequence[KernelPlacement]) -> bool:
        """Reserve the amounts and devices of all these kernels, and return True. If one of them does not fit, reserve
        nothing and return False."""
        for done, placement in enumerate(placements):
            if not self._has_room(placement):
                for earlier in placements[:done]:
                    self._take(earlier, sign=-1)
                return False
            self._take(placement)
        return True

    def _has_room(self, placement: KernelPlacement) -> bool:
        free = self._free.get(placement.agent_id)
        if free is None or (self._kernels_left and self._kernels_left.get(placement.agent_id, 1) < 1):
            return False
        for slot, amount in placement.amounts:
            if amount > free.get(slot, 0):
                return False
        return not placement.shares or self._has_devices(placement)

    def _has_devices(self, placement: KernelPlacement) -> bool:
        """Return whether each device exists and has enough free. A device in use under another slot is not free."""
        taken, devices = self._taken.get(placement.agent_id, {}), self._devices[placement.agent_id]
        return all(
            device in devices.get(slot, ())
            and taken.get(slot, {}).get(device, 0) + amount <= _ONE_DEVICE
            and not any(of_other.get(device) for other, of_other in taken.items() if other != slot)
            for slot, of in placement.shares.items()
            for device, amount in of.items()
        )

    def _take(self, placement: KernelPlacement, sign: int = 1) -> None:
        free = self._free[placement.agent_id]
        for slot, amount in placement.amounts:
            free[slot] -= sign * amount
        if self._kernels_left and placement.agent_id in self._kernels_left:
            self._kernels_left[placement.agent_id] -= sign
        for slot, of in placement.shares.items():
            of_slot = self._taken.setdefault(placement.agent_id, {}).setdefault(slot, {})
            for device, amount in of.items():
                of_slot[device] = of_slot.get(device, 0) + sign * amount
