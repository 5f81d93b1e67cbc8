"""Counts the progress of long work. The worker thread counts, requests read, and a stop request ends the work."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


class Stopped(Exception):
    """The work was stopped."""


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """The progress, as requests return it."""

    bytes: int
    files: int
    total_bytes: int | None
    total_files: int | None = None


@dataclass(slots=True)
class Progress:
    """The progress of one piece of work, and the flag that stops it."""

    bytes: int = 0
    files: int = 0
    total_bytes: int | None = None
    total_files: int | None = None
    stopped: threading.Event = field(default_factory=threading.Event)

    def shown(self) -> ProgressReport:
        """Return the current counters."""
        return ProgressReport(self.bytes, self.files, self.total_bytes, self.total_files)

    def add_bytes(self, count: int) -> None:
        """Count bytes. Raises Stopped."""
        self.bytes += count
        self._go_on()

    def add_files(self, count: int = 1) -> None:
        """Count files. Raises Stopped."""
        self.files += count
        self._go_on()

    def _go_on(self) -> None:
        if self.stopped.is_set():
            raise Stopped
