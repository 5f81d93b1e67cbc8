"""What a backend reads of a running kernel: counters since its start, and levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from backendai.wire.live import DeviceUse


@dataclass(frozen=True, slots=True)
class Reading:
    """``run`` names the very container or process that was read; counters of another one do not go on from it.
    ``cpu_seconds``, bytes of ``net_`` and ``io_`` count up; ``mem_bytes`` is a level. None: it cannot be read there.
    ``devices``: what it uses of accelerators by id, where the backend itself knows."""

    run: str
    cpu_seconds: float | None = None
    mem_bytes: int | None = None
    net_rx: int | None = None
    net_tx: int | None = None
    io_read: int | None = None
    io_write: int | None = None
    devices: Mapping[str, DeviceUse] = field(default_factory=dict)
