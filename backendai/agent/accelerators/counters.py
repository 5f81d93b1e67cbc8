"""Computes the mean use of accelerators over several readings."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from backendai.agent.accelerators.base import MeasuredUse
from backendai.base.wire.live import MOST_DEVICES, MOST_USERS, DeviceUse
from backendai.base.wire.usage import DeviceUsage

_MOST_LOOKS = 1000  # a limit, as nothing calls ``drain`` when measuring is off


@dataclass(slots=True)
class _Sum:
    """The sum of percents over all readings (None if a reading lacked it), and the last memory use."""

    looks: int = 0
    percent: float | None = 0.0
    memory: int | None = None

    def add(self, percent: float | None, memory: int | None) -> None:
        self.looks += 1
        self.percent = None if percent is None or self.percent is None else self.percent + percent
        self.memory = memory


@dataclass(slots=True)
class _Device:
    whole: _Sum = field(default_factory=_Sum)
    is_complete: bool = True
    kernels: dict[UUID, _Sum] = field(default_factory=dict)


class DeviceReadings:
    """Collects readings by device. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._devices: dict[str, _Device] = {}

    def add(self, uses: Mapping[str, MeasuredUse], owners: Mapping[int, UUID]) -> None:
        """Add one reading: the use of each device, and the kernel of each process."""
        with self._lock:
            for device_id, use in uses.items():
                if device_id in self._devices or len(self._devices) < MOST_DEVICES:
                    _add(self._devices.setdefault(device_id, _Device()), use, owners)

    def drain(self) -> dict[str, DeviceUsage]:
        """Return the means since the last call, by device id."""
        with self._lock:
            devices, self._devices = self._devices, {}
        return {device_id: _mean(device) for device_id, device in devices.items()}


def _add(device: _Device, use: MeasuredUse, owners: Mapping[int, UUID]) -> None:
    if device.whole.looks >= _MOST_LOOKS:
        return
    device.whole.add(use.util_pct, use.mem_used)
    if use.processes:
        known = all(pid in owners and one.util_pct is not None for pid, one in use.processes.items())
    else:
        known = use.util_pct == 0.0
    device.is_complete = device.is_complete and known
    for kernel_id in {owners[pid] for pid in use.processes if pid in owners}:
        own = [one for pid, one in use.processes.items() if owners.get(pid) == kernel_id]
        percents = [one.util_pct for one in own if one.util_pct is not None]
        memory = [one.mem_used for one in own if one.mem_used is not None]
        if kernel_id in device.kernels or len(device.kernels) < MOST_USERS:
            told = sum(percents) if percents else None
            device.kernels.setdefault(kernel_id, _Sum()).add(told, sum(memory) if memory else None)


def _mean(device: _Device) -> DeviceUsage:
    looks = device.whole.looks  # a kernel missing in a reading counts as 0
    return DeviceUsage(
        util_pct=_per_look(device.whole.percent, looks),
        mem_used=device.whole.memory,
        is_complete=device.is_complete,
        kernels={
            kernel_id: DeviceUse(util_pct=_per_look(own.percent, looks), mem_used=own.memory)
            for kernel_id, own in device.kernels.items()
        },
    )


def _per_look(percent: float | None, looks: int) -> float | None:
    return None if percent is None else percent / looks
