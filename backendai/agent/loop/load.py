"""The machine's processor and memory use."""

from __future__ import annotations

import os
import threading

import psutil

from backendai.base.wire.live import LiveSample

_SHORTEST = 0.5  # least interval, in seconds summed over all processors


class Load:
    """Measures the machine. Processor use covers the time since the previous call. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._before = _cpu_seconds()
        self._percent: float | None = None

    def sample(self) -> LiveSample:
        """Return the machine's use of processors and memory, without devices."""
        memory = psutil.virtual_memory()
        return LiveSample(
            cpu_pct=self._cpu_percent(),
            load=round(os.getloadavg()[0], 2),
            mem_used=memory.total - memory.available,
            mem_total=memory.total,
        )

    def _cpu_percent(self) -> float | None:
        with self._lock:
            now = _cpu_seconds()
            busy, passed = now[0] - self._before[0], now[1] - self._before[1]
            if passed >= _SHORTEST:
                self._before, self._percent = now, 100.0 * busy / passed
            return self._percent


def _cpu_seconds() -> tuple[float, float]:
    """Return the processors' busy seconds and total seconds since the machine started."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # user time includes guest time
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return total - idle, total
