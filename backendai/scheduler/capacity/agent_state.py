"""One agent during a pass: its free amounts after the placements so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backendai.scheduler.capacity.devices import DeviceBook, Shares
from backendai.scheduler.demand import Request
from backendai.scheduler.snapshot import AgentView, Rules

_USUAL = Rules()
NO_SHARES: Sequence[Shares] = ()


class AgentState:
    """An ``AgentView`` whose free amounts and kernels are updated during the pass.

    ``order``: the agent's position by name. ``book``: its devices; None if they are unknown, and then only amounts
    count. Allocations are subtracted when the free amount is first read. ``AgentStates`` sets ``bucket`` (None: the
    agent takes no sessions), ``entry`` (the agent's rank) and ``packed`` (its free amounts as one integer of
    ``Packing``).
    """

    __slots__ = (
        "_free",
        "_ledger",
        "_taken",
        "alive",
        "architecture",
        "book",
        "bucket",
        "drain_ends_at",
        "draining",
        "entry",
        "fault",
        "id",
        "images",
        "is_native",
        "joins",
        "kernels",
        "low_disk",
        "max_kernels",
        "name",
        "order",
        "packed",
        "schedulable",
        "storage",
        "storage_faults",
        "unhealthy",
    )  # fmt: skip

    def __init__(self, agent: AgentView, order: int, rules: Rules = _USUAL) -> None:
        self.order = order
        self.id = agent.id
        self.name = agent.name
        self.alive = agent.alive
        self.schedulable = agent.schedulable
        self.architecture = agent.architecture
        self.images = agent.images
        self.low_disk = agent.low_disk
        self.joins, self.is_native = agent.joins, agent.is_native
        self.draining, self.drain_ends_at = agent.draining, agent.drain_ends_at
        self.unhealthy = agent.unhealthy
        self.storage, self.storage_faults = agent.storage, agent.storage_faults
        self.fault = agent.fault
        self.kernels = agent.kernels
        self.max_kernels = agent.max_kernels
        self.packed = 0
        self.entry: Any = None
        self.bucket: Any = None
        ledger: dict[str, int] = dict(agent.capacity.items())
        for name, amount in agent.occupied.items():
            ledger[name] = ledger.get(name, 0) - amount
        self._ledger = self._free = ledger
        self._taken: list[Request] = []
        self.book: DeviceBook | None = None
        if agent.devices:
            self.book = DeviceBook(
                agent.devices, fill=rules.fill_devices, allow_fragmentation=rules.allow_fragmentation
            )
            self._free = self._given_by_devices()

    @property
    def ledger(self) -> dict[str, int]:
        """The amounts that are not allocated, by slot: the agent's capacity minus allocations."""
        if self._taken:
            self._subtract()
        return self._ledger

    @property
    def free(self) -> dict[str, int]:
        """The free amounts: capacity minus allocations, but no more than the devices have free."""
        if self._taken:
            self._subtract()
        return self._free

    def fits(self, request: Request) -> bool:
        """Return whether amounts and kernels of the request fit now; devices are not checked."""
        free = self.free
        for name, amount in request.items:
            if free.get(name, 0) < amount:
                return False
        return self.has_kernels_left(request.kernels)

    def has_kernels_left(self, kernels: int) -> bool:
        """Return whether the agent's limit of kernels allows this many more kernels."""
        return self.max_kernels is None or self.kernels + kernels <= self.max_kernels

    def shares_for(self, request: Request) -> Sequence[Shares] | None:
        """Return the devices for each kernel: empty if the request needs none, None if they do not fit. Reserves
        nothing."""
        if self.book is None or not request.kinds:
            return NO_SHARES
        return self.book.choose(request.accelerators)

    def take(self, request: Request, times: int = 1) -> None:
        """Subtract the request's amounts and kernels from the free ones; ``times=-1`` adds them back. Devices are not
        changed."""
        self.kernels += request.kernels * times
        if self.book is None and times == 1:
            self._taken.append(request)
            return
        ledger, free = self.ledger, self.free
        for name, amount in request.items:
            ledger[name] = ledger.get(name, 0) - amount * times
        if self.book is not None and request.kinds:
            self._free = self._given_by_devices()
        elif self.book is not None:
            for name, _ in request.items:
                free[name] = ledger[name]

    def take_devices(self, shares: Sequence[Shares], times: int = 1) -> None:
        """Reserve the devices of a request; ``times=-1`` frees them. The amounts are subtracted separately."""
        if self.book is not None:
            self.book.take(shares, times)

    def return_devices(self, request: Request) -> None:
        """Free the devices that a request used. As these are unknown, they are estimated from its amounts. The amounts
        are added back separately."""
        if self.book is not None:
            for name in request.kinds:
                self.book.estimate_return(name, request.wanted[name])

    def copy(self) -> AgentState:
        """Return an independent copy."""
        other: AgentState = object.__new__(AgentState)  # ``copy.copy`` takes five times as long
        other.order, other.id, other.name = self.order, self.id, self.name
        other.alive, other.schedulable, other.low_disk = self.alive, self.schedulable, self.low_disk
        other.architecture, other.images, other.fault = self.architecture, self.images, self.fault
        other.joins, other.is_native = self.joins, self.is_native
        other.draining, other.drain_ends_at = self.draining, self.drain_ends_at
        other.unhealthy = self.unhealthy
        other.storage, other.storage_faults = self.storage, self.storage_faults
        other.kernels, other.max_kernels = self.kernels, self.max_kernels
        other.packed, other.entry = self.packed, self.entry
        other._ledger = dict(self.ledger)
        other._free = other._ledger if self.book is None else dict(self.free)
        other._taken = []
        other.book = self.book and self.book.copy()
        other.bucket = None
        return other

    def _subtract(self) -> None:
        ledger = self._ledger
        for request in self._taken:
            for name, amount in request.items:
                ledger[name] = ledger.get(name, 0) - amount
        self._taken.clear()

    def _given_by_devices(self) -> dict[str, int]:
        """Return the free amounts: capacity minus allocations, but no more than the devices have free."""
        assert self.book is not None
        free = dict(self._ledger)
        for slot in self.book.slots:
            free[slot] = min(free.get(slot, 0), self.book.total(slot))
        return free
