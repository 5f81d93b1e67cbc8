"""Allocates an agent's devices to kernels. The slot's name decides how: whole devices (``.device``), fractions in steps
of 0.01 (``.shares``), or one MIG device per kernel (``.mig-``).

A physical device may be listed under several slots with the same id. While it is used under one slot, the other slots
do not offer it. Amounts are thousandths.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush

from backendai.base.core.messages import Message
from backendai.base.core.slots import MILLI, amount_in_words, decimal_text
from backendai.scheduler.plan import Reason
from backendai.scheduler.snapshot import DeviceView

STEP = 10  # thousandths: fractions of a device come in steps of 0.01

KernelDevices = tuple[tuple[str, int], ...]  # the accelerators that one kernel requests: slot, amount
Shares = dict[str, dict[str, int]]  # slot → device id → amount


def is_fractional(slot: str) -> bool:
    """Return whether several kernels can share a device of this slot."""
    return slot.endswith(".shares")


def is_unique(slot: str) -> bool:
    """Return whether a kernel takes exactly one device of this slot."""
    return ".mig-" in slot


def flaw_of(amounts: Iterable[tuple[str, int]]) -> Reason | None:
    """Return why no agent can ever provide these accelerator amounts to a kernel; None if an agent could."""
    for slot, amount in amounts:
        wrong = ""
        if is_fractional(slot) and amount % STEP:
            wrong = Message("it comes in steps of 0.01")
        elif is_unique(slot) and amount != MILLI:
            wrong = Message("a kernel takes exactly 1")
        elif slot.endswith(".device") and amount % MILLI:
            wrong = Message("only whole devices can be allocated")
        if wrong:
            asked = decimal_text(amount)
            details: dict[str, object] = {"slot": slot, "wanted": asked, "step": "0.01" if is_fractional(slot) else "1"}
            message = Message(
                "{amount} cannot be allocated: {wrong}.", amount=amount_in_words(slot, amount), wrong=wrong
            )
            return Reason("invalid-amount", message, details, never=True)
    return None


class DeviceBook:
    """The free amounts of one agent's devices during a pass. ``fill``: use up the devices with the fewest free units
    first. ``allow_fragmentation``: split a fraction over devices even if one empty device could hold it."""

    __slots__ = ("_capacity", "_free", "_views", "allow_fragmentation", "fill")

    def __init__(self, devices: Iterable[DeviceView], *, fill: bool = False, allow_fragmentation: bool = True) -> None:
        self.fill, self.allow_fragmentation = fill, allow_fragmentation
        self._capacity: dict[str, dict[str, int]] = {}
        self._free: Shares = {}
        views: dict[str, list[str]] = {}
        for device in devices:
            self._capacity.setdefault(device.slot, {})[device.id] = device.capacity
            self._free.setdefault(device.slot, {})[device.id] = device.capacity - device.taken
            views.setdefault(device.id, []).append(device.slot)
        self._views = {device: slots for device, slots in views.items() if len(slots) > 1}

    @property
    def slots(self) -> Iterable[str]:
        """The slots whose devices are known."""
        return self._free.keys()

    @property
    def is_entangled(self) -> bool:
        """Whether a device is listed under several slots. Using one slot then reduces another."""
        return bool(self._views)

    def available(self, slot: str) -> Mapping[str, int]:
        """Return the free amount of each device of the slot; 0 while it is used under another slot."""
        free = self._free.get(slot, {})
        if not self._views:
            return free
        return {device: 0 if self._is_hidden(slot, device) else left for device, left in free.items()}

    def choose(self, kernels: Sequence[KernelDevices]) -> list[Shares] | None:
        """Return the devices for each kernel, or None if the amounts do not fit together. Reserves nothing."""
        if len(kernels) == 1 and len(kernels[0]) == 1:
            slot, amount = kernels[0][0]
            only = self._share_out(slot, amount) if slot in self._free else {}
            return None if only is None else [{slot: only} if only else {}]
        chosen: list[Shares] = [{} for _ in kernels]
        largest_first = sorted(range(len(kernels)), key=lambda index: [-amount for _, amount in kernels[index]])
        booked: list[Shares] = []
        for index in largest_first:
            for slot, amount in kernels[index]:
                if slot not in self._free:
                    continue
                shares = self._share_out(slot, amount)
                if shares is None:
                    self.give_back(booked)
                    return None
                chosen[index][slot] = shares
                booked.append({slot: shares})
                self.take(booked[-1:])
        self.give_back(booked)
        return chosen

    def take(self, kernels: Iterable[Shares], times: int = 1) -> None:
        """Subtract these shares from the devices' free amounts ``times`` times; -1 adds them back."""
        for kernel in kernels:
            for slot, shares in kernel.items():
                free = self._free[slot]
                for device, amount in shares.items():
                    free[device] -= amount * times

    def give_back(self, kernels: Iterable[Shares]) -> None:
        """Add these shares back to the devices' free amounts."""
        self.take(kernels, times=-1)

    def estimate_return(self, slot: str, amount: int) -> None:
        """Free an amount whose devices are unknown. A device with exactly this use is freed first, then the fullest
        devices."""
        free, capacity = self._free.get(slot, {}), self._capacity.get(slot, {})
        held = {device: capacity[device] - left for device, left in free.items() if capacity[device] > left}
        for device in sorted(held, key=lambda device: (held[device] != amount, -held[device])):
            returned = min(amount, held[device])
            free[device] += returned
            amount -= returned

    def largest_and_sum(self, slot: str) -> tuple[int, int]:
        """Return the slot's largest free amount on one device, and the sum over its devices."""
        return max(self.available(slot).values(), default=0), self.total(slot)

    def total(self, slot: str) -> int:
        """Return the sum of the free amounts of the slot's devices. Negative amounts count as 0."""
        return sum([left for left in self.available(slot).values() if left > 0])

    def copy(self) -> DeviceBook:
        """Return an independent copy."""
        other = DeviceBook((), fill=self.fill, allow_fragmentation=self.allow_fragmentation)
        other._capacity, other._views = self._capacity, self._views
        other._free = {slot: dict(free) for slot, free in self._free.items()}
        return other

    def _is_hidden(self, slot: str, device: str) -> bool:
        """Return whether the device is in use under another slot."""
        for other in self._views.get(device, ()):
            if other != slot and self._free[other][device] < self._capacity[other][device]:
                return True
        return False

    def _share_out(self, slot: str, amount: int) -> dict[str, int] | None:
        free = self.available(slot)
        if is_unique(slot):
            return _one(amount, free)
        if not is_fractional(slot):
            return _whole(amount, free, self.fill)
        on_one = _one(amount, free)
        if on_one is not None:
            return on_one
        if not self.allow_fragmentation and amount <= max(self._capacity[slot].values()):
            return None
        return _fragments(amount, free)


def _one(amount: int, free: Mapping[str, int]) -> dict[str, int] | None:
    """Return ``{device id: amount}`` for the fullest device that has room for the whole amount; None if there is
    none."""
    best = None
    for device, left in free.items():
        if left >= amount and (best is None or left < free[best]):
            best = device
    return None if best is None else {best: amount}


def _whole(amount: int, free: Mapping[str, int], fill: bool) -> dict[str, int] | None:
    """Return how much to take from each device (device id → amount) in whole units; None if too few are free.

    With ``fill`` devices are emptied one after the other, the one with the fewest free units first. Otherwise each unit
    comes from the device with the most free units.
    """
    units, rest = divmod(amount, MILLI)
    pieces = [
        (left // MILLI * (1 if fill else -1), place, device)
        for place, (device, left) in enumerate(free.items())
        if left >= MILLI
    ]
    if rest or sum([abs(left) for left, _, _ in pieces]) < units:
        return None
    heapify(pieces)
    shares: dict[str, int] = {}
    while units:
        left, place, device = heappop(pieces)
        taken = min(left, units) if fill else 1
        shares[device] = shares.get(device, 0) + taken * MILLI
        units -= taken
        if not fill and left + 1 < 0:
            heappush(pieces, (left + 1, place, device))
    return shares


def _fragments(amount: int, free: Mapping[str, int]) -> dict[str, int] | None:
    """Return the amount split over the fewest devices (device id → amount), as evenly as possible; None if all devices
    together have too little free."""
    by_size = sorted((left // STEP * STEP, place, device) for place, (device, left) in enumerate(free.items()))
    number = total = 0
    while total < amount:
        number += 1
        if number > len(by_size):
            return None
        total += by_size[-number][0]
    best: tuple[int, int, dict[str, int]] | None = None
    for start in range(len(by_size) - number + 1):
        these = by_size[start : start + number]
        together = sum(left for left, _, _ in these)
        if together >= amount:
            shares = _evenly(amount, [(device, left) for left, _, device in these])
            unevenness = max(shares.values()) - min(shares.values())
            if best is None or (unevenness, together) < best[:2]:
                best = unevenness, together, shares
    return None if best is None else best[2]


def _evenly(amount: int, devices: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Return the amount split equally (device id → share) in steps of 0.01; the last device gets the rest. A device
    that has less than its share gives all it has. ``devices``: pairs of id and free amount, the smallest amount
    first."""
    shares = {}
    for place, (device, left) in enumerate(devices):
        even = amount // (len(devices) - place) // STEP * STEP
        shares[device] = min(left, even) if place + 1 < len(devices) else amount
        amount -= shares[device]
    return shares
