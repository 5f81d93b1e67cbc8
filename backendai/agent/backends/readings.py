"""A measurement of a running kernel: counters since its start, and current levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from backendai.base.wire.live import DeviceUse


@dataclass(frozen=True, slots=True)
class Reading:
    """``run`` identifies the measured container or process; only counters of the same run can be subtracted.

    ``cpu_seconds``, ``net_`` and ``io_`` bytes are counters, and so is ``memory_kills``: programs that ended at the
    memory limit. ``mem_bytes`` is a level. None: not measurable.
    ``devices``: the use of accelerators by id, where the backend itself measures it.
    """

    run: str
    cpu_seconds: float | None = None
    mem_bytes: int | None = None
    net_rx: int | None = None
    net_tx: int | None = None
    io_read: int | None = None
    io_write: int | None = None
    memory_kills: int | None = None
    devices: Mapping[str, DeviceUse] = field(default_factory=dict)
