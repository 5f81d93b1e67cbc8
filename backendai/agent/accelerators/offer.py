"""The accelerators that an agent reports to the portal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from backendai.agent.accelerators.base import Device, MeasuredUse
from backendai.base.core.slots import MILLI, Slots
from backendai.base.wire.live import MOST_DEVICES, MOST_USERS, DeviceSample, DeviceUse
from backendai.base.wire.messages import Note

_MOST_NOTES = 16
Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class Offer:
    """``devices``: for each slot, the ids that new kernels can get. ``capacity``: the amount of each slot. ``samples``:
    the use of all devices by id, including faulty ones."""

    devices: Mapping[str, list[str]] = field(default_factory=dict)
    capacity: Slots = field(default_factory=Slots)
    notes: Sequence[Note] = ()
    samples: Mapping[str, DeviceSample] = field(default_factory=dict)


def offer_of(
    devices: Iterable[Device],
    uses: Mapping[str, MeasuredUse],
    owners: Mapping[int, UUID],
    notes: Sequence[Note],
    asked: Slots,
) -> Offer:
    """Return the offer of all healthy devices, limited to the ``asked`` amounts."""
    devices = sorted(devices, key=lambda device: (device.mock, device.slot, device.number, device.id))[:MOST_DEVICES]
    offered: dict[str, list[str]] = {}
    for device in devices:
        if not device.fault:
            offered.setdefault(device.slot, []).append(device.id)
    amounts = {slot: len(ids) * MILLI for slot, ids in offered.items()}
    capacity = Slots({slot: min(amount, asked[slot] or amount) for slot, amount in amounts.items()})
    faulty: dict[str, list[Device]] = {}
    for device in devices:
        if device.fault:
            faulty.setdefault(device.fault, []).append(device)
    faults = [_fault_note(fault, those) for fault, those in faulty.items()]
    return Offer(
        offered,
        capacity,
        [*notes, *_unmet(asked, devices), *faults][:_MOST_NOTES],
        {device.id: _sample(device, uses.get(device.id, MeasuredUse()), owners) for device in devices},
    )


def is_accelerator(slot: str) -> bool:
    """Return whether the slot counts devices, as ``cuda.device`` does and ``cpu`` does not."""
    return "." in slot


def _sample(device: Device, use: MeasuredUse, owners: Mapping[int, UUID]) -> DeviceSample:
    kernels: dict[UUID, DeviceUse] = {}
    for pid, process in use.processes.items():
        kernel = owners.get(pid)
        if kernel is not None and (kernel in kernels or len(kernels) < MOST_USERS):
            before = kernels.get(kernel, DeviceUse())
            kernels[kernel] = DeviceUse(
                util_pct=_sum(before.util_pct, process.util_pct), mem_used=_sum(before.mem_used, process.mem_used)
            )
    return DeviceSample(
        slot=device.slot,
        model=device.model,
        util_pct=use.util_pct,
        mem_used=use.mem_used,
        mem_total=device.memory,
        numa=device.numa,
        healthy=not device.fault,
        mock=device.mock,
        note=device.fault,
        kernels=kernels,
    )


def _sum(one: Number | None, other: Number | None) -> Number | None:
    return other if one is None else one if other is None else one + other


def _fault_note(fault: str, devices: Sequence[Device]) -> Note:
    names = ", ".join(device.id for device in devices)
    return Note(
        code="accelerator-unhealthy",
        message=f"{devices[0].model or devices[0].slot} gets no new sessions: {fault.rstrip('.')} ({names}).",
        fix="Look at the machine (nvidia-smi, rocm-smi, dmesg); once it is repaired, start the agent again.",
    )


def _unmet(asked: Slots, devices: Sequence[Device]) -> list[Note]:
    """Return notes about slots in the settings that no device of the machine provides."""
    missing = sorted(asked.keys() - {device.slot for device in devices})
    if not missing:
        return []
    return [
        Note(
            code="accelerator-not-offered",
            message=f"This agent was told to offer {', '.join(missing)}, but its devices are not offered so.",
            fix="Correct BACKENDAI_AGENT_SLOTS, or BACKENDAI_AGENT_CUDA, which says how GPUs are handed out.",
        )
    ]
