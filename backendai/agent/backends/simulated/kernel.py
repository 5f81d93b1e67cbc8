"""A simulated kernel's state at a given time, and the journal by which kernels outlive the agent."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from backendai.agent.backends.base import Ended, ended_by_itself, ended_short_of_memory
from backendai.base.core.slots import MILLI, Slots
from backendai.base.wire.messages import KernelSighting, KernelSpec

STOPPED = 143  # the exit code after SIGTERM
_LINES_KEPT = 10_000
_ROUNDING = 1e-3  # floats of seconds since the epoch are not exact
_SLEEP = re.compile(r"\bsleep\s+(\d+(?:\.\d+)?)")
_NUMBER = re.compile(r"\d{1,7}(\.\d{1,6})?")
_EXIT = re.compile(r"\bexit\s+(\d{1,3})")
_STARVED = re.compile(r"\bout-of-memory\b")


@dataclass(frozen=True, slots=True)
class SimulatedDurations:
    """Durations in simulated seconds; ``time_scale``: real seconds per simulated one (0: instantly)."""

    start_seconds: float = 1.0
    batch_seconds: float = 60.0
    line_seconds: float = 1.0
    pull_seconds: float = 5.0
    time_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class SimulatedKernel:
    """Times are seconds of the clock. ``lasts`` (None: until stopped) and ``line_every`` are already scaled."""

    kernel_id: str
    deployment: str
    generation: int
    title: str
    hostname: str
    begins_at: float
    lasts: float | None
    line_every: float
    exit_code: int
    stopped_at: float | None = None
    slots: dict[str, str] = field(default_factory=dict)
    devices: dict[str, dict[str, str]] = field(default_factory=dict)
    serves_port: int = 0
    is_starved: bool = False  # a process of it was killed at its memory limit
    load: float | None = None  # how busy it is, 0 to 1; None: by chance

    def ends_at(self) -> float:
        """Return the time of the kernel's end; infinity if it has no end."""
        by_itself = float("inf") if self.lasts is None else self.begins_at + self.lasts
        return by_itself if self.stopped_at is None else min(by_itself, self.stopped_at)

    def began(self, now: float) -> bool:
        """Return whether the main process has started."""
        return now >= self.begins_at

    def running(self, now: float) -> bool:
        """Return whether the main process runs."""
        return self.begins_at <= now < self.ends_at()

    def ended(self, now: float) -> Ended | None:
        """Return how the main process ended; None while it runs."""
        if now < self.ends_at():
            return None
        if self.stopped_at is not None and self.ends_at() == self.stopped_at:
            return Ended(STOPPED, "", "")
        if self.is_starved:
            return ended_short_of_memory(self.exit_code, Slots.parse(self.slots)["mem"] // MILLI)
        return ended_by_itself(self.exit_code)

    def sighting(self, now: float) -> KernelSighting:
        """Return the kernel's state for the portal."""
        ended = self.ended(now)
        return KernelSighting(
            kernel_id=UUID(self.kernel_id),
            generation=self.generation,
            running=ended is None,
            container_id=self.container_id(),
            exit_code=ended.exit_code if ended else None,
        )

    def container_id(self) -> str:
        """Return an id of this run of the kernel."""
        return f"simulated-{self.kernel_id}-{self.generation}"

    def lines(self, now: float) -> int:
        """Return the number of lines printed after the first."""
        if not self.line_every:
            return 0
        printed_for = max(min(now, self.ends_at()) - self.begins_at, 0.0)
        return int(printed_for / self.line_every + _ROUNDING)

    def log(self, now: float, *, after: int = -1) -> bytes:
        """Return the output after line number ``after`` (the first is 0), at most the last 10 000 lines."""
        last = self.lines(now)
        numbers = range(max(after + 1, last - _LINES_KEPT, 0), last + 1)
        return "".join(f"line-{number}\n" if number else f"{self.title}\n" for number in numbers).encode()

    def stop(self, now: float) -> SimulatedKernel:
        """Return the kernel's state after an order to stop."""
        return self if self.stopped_at is not None else replace(self, stopped_at=now)


def duration_of(spec: KernelSpec, batch_seconds: float) -> float | None:
    """Return the main process's duration in seconds: SIMULATED_SECONDS, the sleeps in its command, else
    ``batch_seconds``; None: endless."""
    if not spec.runs_program or (serving_port(spec) and not _EXIT.search(spec.command)):
        return None
    if (told := _number(spec, "SIMULATED_SECONDS")) is not None:
        return told
    sleeps = [float(seconds) for seconds in _SLEEP.findall(spec.command)]
    return sum(sleeps) if sleeps or _EXIT.search(spec.command) else batch_seconds


def serving_port(spec: KernelSpec) -> int:
    """Return the port of an inference session's server; 0 for other sessions."""
    port = spec.environ.get("BACKENDAI_SERVING_PORT", "")
    return int(port) if port.isdecimal() and 0 < int(port) < 2**16 else 0


def ending_of(spec: KernelSpec) -> dict[str, Any]:
    """Return the exit code in the command, 0 without one, and whether the command names ``out-of-memory``."""
    named = _EXIT.search(spec.command)
    return {"exit_code": int(named[1]) if named else 0, "is_starved": bool(_STARVED.search(spec.command))}


def load_of(spec: KernelSpec) -> float | None:
    """Return the load of SIMULATED_LOAD, 0 to 1; None without it."""
    told = _number(spec, "SIMULATED_LOAD")
    return None if told is None else min(told, 1.0)


def _number(spec: KernelSpec, name: str) -> float | None:
    told = spec.environ.get(name, "")
    return float(told) if _NUMBER.fullmatch(told) else None


class SimulatedJournal:
    """An append-only file with a line for each change of a kernel. Without a path nothing is saved."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def load(self) -> dict[UUID, SimulatedKernel]:
        """Return the existing kernels; ignores a last line that a crash cut off."""
        kernels: dict[UUID, SimulatedKernel] = {}
        if self._path is None or not self._path.exists():
            return kernels
        for line in self._path.read_text().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if "gone" in entry:
                kernels.pop(UUID(entry["gone"]), None)
            else:
                kernels[UUID(entry["kernel_id"])] = SimulatedKernel(**entry)
        return kernels

    def keep(self, kernel: SimulatedKernel) -> None:
        """Append a kernel's state."""
        self._append(asdict(kernel))

    def forget(self, kernel_id: UUID) -> None:
        """Append that a kernel was removed."""
        self._append({"gone": str(kernel_id)})

    def _append(self, entry: dict[str, object]) -> None:
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(entry) + "\n")
