"""Enforces limits of folders where the file system does not.

A folder's use is the last measurement, the bytes written since, and the bytes reserved by running writers.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from backendai.files.refusals import Refusal
from backendai.files.tree import Meta, Size


class Room:
    """Bytes of a folder that are reserved for one writer."""

    def __init__(self, ledger: Ledger, folder_id: UUID, meta: Meta, size: Size | None) -> None:
        self._ledger, self._folder_id, self._meta, self._size = ledger, folder_id, meta, size
        self.left = 0

    def look_again(self, meta: Meta, size: Size | None) -> None:
        """Use a newer meta and size for further reservations."""
        self._meta, self._size = meta, size

    def add(self, count: int) -> None:
        """Reserve more bytes. Refuses with 507 a reservation above the folder's limit."""
        self._ledger.reserve(self._folder_id, self._meta, self._size, count)
        self.left += count

    def wrote(self, count: int) -> None:
        """Count written bytes; reserves them if they were not reserved. Refuses with 507. Thread-safe."""
        if count > self.left:
            self.add(count - self.left)
        self.left -= count
        self._ledger.settle(self._folder_id, count)


class Ledger:
    """The bytes written to each folder since its last measurement, and the reserved bytes. Empty after a restart."""

    def __init__(self) -> None:
        self._written: defaultdict[UUID, int] = defaultdict(int)
        self._promised: defaultdict[UUID, int] = defaultdict(int)
        self._lock = threading.Lock()

    def add(self, folder_id: UUID, count: int) -> None:
        """Count written bytes."""
        with self._lock:
            self._written[folder_id] += count

    def written(self, folder_id: UUID) -> int:
        """Return the bytes written since the last measurement."""
        return self._written.get(folder_id, 0)

    def forget(self, folder_id: UUID, count: int) -> None:
        """Subtract the bytes that a measurement has counted."""
        with self._lock:
            self._written[folder_id] = max(0, self._written.get(folder_id, 0) - count)

    @contextmanager
    def room(self, folder_id: UUID, meta: Meta, size: Size | None, count: int) -> Iterator[Room]:
        """Reserve ``count`` bytes during the context; the unused rest is released at its end. Refuses with 507."""
        room = Room(self, folder_id, meta, size)
        room.add(count)
        try:
            yield room
        finally:
            self._take_back(folder_id, room.left)

    def reserve(self, folder_id: UUID, meta: Meta, size: Size | None, more: int) -> None:
        """Reserve bytes. Refuses with 507 a reservation above the folder's limit."""
        with self._lock:
            used = (size.bytes if size else 0) + self.written(folder_id)
            promised = self._promised.get(folder_id, 0)
            if meta.limit is not None and used + promised + more > meta.limit:
                raise _refusal(meta.limit, used, promised, more)
            self._promised[folder_id] += more

    def settle(self, folder_id: UUID, count: int) -> None:
        """Turn reserved bytes into written bytes."""
        self._take_back(folder_id, count)
        self.add(folder_id, count)

    def _take_back(self, folder_id: UUID, count: int) -> None:
        with self._lock:
            self._promised[folder_id] -= count
            if self._promised[folder_id] <= 0:
                del self._promised[folder_id]


def _refusal(limit: int, used: int, promised: int, more: int) -> Refusal:
    others = f", and {promised} are on their way" if promised else ""
    message = (
        f"The folder holds {used} bytes of {limit}{others}; {more} more do not fit. "
        "Delete something and empty the trash, or ask for a larger limit."
    )
    return Refusal(507, "quota", message, limit=limit, used=used)
