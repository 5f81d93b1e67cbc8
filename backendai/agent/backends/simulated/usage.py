"""Simulates the resource use of a kernel: waves around a level, both derived from its id."""

from __future__ import annotations

import math
from random import Random

from backendai.agent.backends.base import KernelReading
from backendai.agent.backends.simulated.kernel import SimulatedKernel
from backendai.base.wire.live import DeviceUse

_WARM_UP_SECONDS = 60.0


def reading_of(kernel: SimulatedKernel, now: float) -> KernelReading:
    """Return the counters of a running kernel."""
    passed = max(now - kernel.begins_at, 0.0)
    chance = Random(kernel.kernel_id)
    level, swing, period = chance.uniform(0.2, 0.7), chance.uniform(0.05, 0.2), chance.uniform(60.0, 300.0)
    if kernel.load is not None:
        level, swing = kernel.load, min(swing, kernel.load / 2, (1 - kernel.load) / 2)
    turn = 2 * math.pi * passed / period
    busy = level * passed + swing * period / (2 * math.pi) * (1 - math.cos(turn))  # its rate is level + swing · sin
    warmth = 1 - math.exp(-passed / _WARM_UP_SECONDS)
    percent = 100 * (level + swing * math.sin(turn))
    memory = chance.uniform(0.3, 0.8) * warmth
    stream = int(passed * chance.uniform(1e4, 1e6))
    return KernelReading(
        run=kernel.container_id(),
        cpu_seconds=float(kernel.slots.get("cpu", 0)) * busy,
        mem_bytes=int(float(kernel.slots.get("mem", 0)) * memory),
        net_rx=stream,
        net_tx=stream // 4,
        io_read=stream // 2,
        io_write=stream // 8,
        devices={
            device_id: DeviceUse(util_pct=percent * float(amount))
            for devices in kernel.devices.values()
            for device_id, amount in devices.items()
        },
    )
