"""Measures the resource use of kernels: a thread reads counters, and the sync carries the differences to the portal.

No other work waits for it. A new round starts only after the portal has received the last one, so each covers the time
since, and nothing is counted twice. While the portal does not answer for over 300 s, measurements are lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from backendai.agent.accelerators.inventory import Accelerators
from backendai.agent.backends.abilities import Measuring
from backendai.agent.backends.base import Backend, BackendError, KernelReading
from backendai.base.wire.messages import KernelSighting
from backendai.base.wire.usage import LONGEST_SECONDS, MOST_KERNELS, DeviceUsage, KernelUsage, UsageReport

logger = logging.getLogger(__name__)

_SHORTEST_SECONDS = 0.5
_PATIENCE_SECONDS = 300.0  # an undelivered report is kept this long; the portal rejects much older ones
_COUNTERS = ("net_rx", "net_tx", "io_read", "io_write")


@dataclass(frozen=True, slots=True)
class _Before:
    """The previous reading, and its time (monotonic)."""

    taken_at: float
    reading: KernelReading


class UsageSampler:
    """Measures every ``interval`` seconds after ``start`` (0: never). ``portal_now``: the portal's time in epoch
    seconds."""

    def __init__(
        self,
        backend: Backend,
        accelerators: Accelerators,
        *,
        interval: float,
        portal_now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend, self._accelerators, self._interval = backend, accelerators, interval
        self._portal_now, self._clock = portal_now, clock
        self._kernels: list[KernelSighting] = []
        self._before: dict[UUID, _Before] = {}
        self._untold: deque[UsageReport] = deque()
        self._made_at = 0.0
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="usage", daemon=True)

    def start(self) -> None:
        """Start to measure, unless the interval is 0."""
        if self._interval:
            self._thread.start()

    def stop(self) -> None:
        """Stop measuring. Does not wait for a hanging engine."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def saw(self, kernels: Iterable[KernelSighting]) -> None:
        """Set the kernels to measure."""
        self._kernels = [kernel for kernel in kernels if kernel.running]

    def report(self) -> UsageReport | None:
        """Return the next report for the portal; the same until ``told`` is called with it."""
        with self._lock:
            return self._untold[0] if self._untold else None

    def told(self, report: UsageReport | None) -> None:
        """Record that the portal has received the report."""
        with self._lock:
            if self._untold and self._untold[0] is report:
                self._untold.popleft()

    def measure(self) -> None:
        """Measure all kernels and queue a report of their use since the last round. Does nothing while an earlier
        report is undelivered. Raises BackendError."""
        with self._lock:
            if self._untold and self._clock() - self._made_at < _PATIENCE_SECONDS:
                return
        kernels = list(self._kernels)
        readings = self._backend.readings(kernels) if isinstance(self._backend, Measuring) else {}
        now, at = self._clock(), self._portal_now()
        usages = []
        for kernel in kernels:
            reading, before = readings.get(kernel.kernel_id), self._before.get(kernel.kernel_id)
            if reading and before and before.reading.run == reading.run:
                seconds = now - before.taken_at
                if _SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
                    usages.append(_usage(kernel, before.reading, reading, seconds))
        self._before = {pk: _Before(now, reading) for pk, reading in readings.items()}
        devices = _with_own(self._accelerators.drain(), readings)
        reports = [
            UsageReport(at=at, kernels=usages[begin : begin + MOST_KERNELS], devices=devices)
            for begin in range(0, len(usages), MOST_KERNELS)
        ]
        with self._lock:
            self._untold, self._made_at = deque(reports), now

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.measure()
            except BackendError as error:
                logger.info("the use of kernels cannot be measured now: %s", error.message)
            except Exception:
                logger.exception("the use of kernels could not be measured")
            self._stopped.wait(self._interval)


def _usage(kernel: KernelSighting, before: KernelReading, after: KernelReading, seconds: float) -> KernelUsage:
    spent = _grown(before.cpu_seconds, after.cpu_seconds)
    return KernelUsage(
        kernel_id=kernel.kernel_id,
        generation=kernel.generation,
        seconds=round(seconds, 3),
        cpu=None if spent is None else spent / seconds,
        mem_bytes=after.mem_bytes,
        memory_kills=None if after.memory_kills is None else min(after.memory_kills, 2**31 - 1),
        **{name: _whole(_grown(getattr(before, name), getattr(after, name))) for name in _COUNTERS},
    )


def _grown(before: float | None, after: float | None) -> float | None:
    """Return the growth of a counter, at least 0: a counter shrinks when a process whose use it included ends."""
    return None if before is None or after is None else max(after - before, 0)


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def _with_own(devices: Mapping[str, DeviceUsage], readings: Mapping[UUID, KernelReading]) -> dict[str, DeviceUsage]:
    """Return the devices with the backend's own measurements added."""
    merged = dict(devices)
    for kernel_id, reading in readings.items():
        for device_id, use in reading.devices.items():
            device = merged.get(device_id, DeviceUsage())
            merged[device_id] = device.model_copy(update={"kernels": {**device.kernels, kernel_id: use}})
    return merged
