"""The generation of each kernel on this agent, for checks of tickets and late orders."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from uuid import UUID

from backendai.base.wire.messages import KernelSighting

UNKNOWN = -1


class KernelIndex:
    """Maps kernel ids to generations. Thread-safe. Filled by starts and by listings of the backend.

    ``is_complete``: a missing kernel is not on this agent; False until the first listing.
    """

    def __init__(self, *, is_complete: bool = True) -> None:
        self.is_complete = is_complete
        self._known: dict[UUID, tuple[int, float]] = {}
        self._lock = threading.Lock()

    def generation(self, kernel_id: UUID, *, default: int = UNKNOWN) -> int:
        """Return the kernel's generation on this agent, or ``default`` if the kernel is not here."""
        with self._lock:
            return self._known.get(kernel_id, (default, 0.0))[0]

    def ids(self) -> set[UUID]:
        """Return the ids of the kernels on this agent."""
        with self._lock:
            return set(self._known)

    def note(self, kernel_id: UUID, generation: int) -> None:
        """Add a kernel that was just started or adopted."""
        with self._lock:
            self._known[kernel_id] = (generation, time.monotonic())

    def forget(self, kernel_id: UUID) -> None:
        """Delete a kernel that was just removed."""
        with self._lock:
            self._known.pop(kernel_id, None)

    def replace(self, listing: Iterable[KernelSighting], *, taken_at: float) -> None:
        """Replace the entries with the kernels of a backend listing; entries newer than the listing stay.
        ``taken_at``: when the listing began (monotonic clock).
        """
        with self._lock:
            younger = {kernel_id: entry for kernel_id, entry in self._known.items() if entry[1] >= taken_at}
            self._known = {one.kernel_id: (one.generation, taken_at) for one in listing} | younger
            self.is_complete = True
