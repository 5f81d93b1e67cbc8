"""Enforces limits of folders where the file system does not: their bytes, and the number of their entries.

A folder's use is the last measurement, what was written since, and what is reserved by running writers. A writer that
replaces a file gets the bytes that this frees beyond the limit, as both are there until the new one is complete.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from backendai.files.entries.tree import Meta, Size
from backendai.files.refusals import Refusal


@dataclass(frozen=True, slots=True)
class Amount:
    """Bytes, and entries: files, directories and links."""

    bytes: int = 0
    entries: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.bytes + other.bytes, self.entries + other.entries)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(max(0, self.bytes - other.bytes), max(0, self.entries - other.entries))


NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class Held:
    """What a reservation is compared with: the folder's limits, its last measurement, and what a replaced file
    frees."""

    meta: Meta
    size: Size | None
    freed: Amount = NOTHING


class Room:
    """An amount of a folder that is reserved for one writer."""

    def __init__(self, ledger: Ledger, folder_id: UUID, held: Held) -> None:
        self._ledger, self._folder_id, self._held = ledger, folder_id, held
        self.left = NOTHING

    def look_again(self, held: Held) -> None:
        """Use a newer measurement for further reservations."""
        self._held = held

    def add(self, more: Amount) -> None:
        """Reserve more. Refuses with 507 a reservation above the folder's limits. Thread-safe."""
        if more != NOTHING:
            self._ledger.reserve(self._folder_id, self._held, more)
            self.left += more

    def wrote(self, count: int) -> None:
        """Count written bytes; reserves them if they were not reserved. Refuses with 507. Thread-safe."""
        if count > self.left.bytes:
            self.add(Amount(count - self.left.bytes))
        self.left -= Amount(count)
        self._ledger.settle(self._folder_id, Amount(count))

    @contextmanager
    def replacing(self, freed: Amount) -> Iterator[None]:
        """Count what the file frees that is replaced in the context. Refuses with 507 if it is less than expected, as
        the file was moved elsewhere meanwhile, and the folder would be above its limit."""
        if freed.bytes < self._held.freed.bytes:
            self._ledger.require(self._folder_id, Held(self._held.meta, self._held.size, freed))
        yield
        self._ledger.forget(self._folder_id, freed)


class Ledger:
    """What was written to each folder since its last measurement, and what is reserved. Empty after a restart."""

    def __init__(self) -> None:
        self._written: defaultdict[UUID, Amount] = defaultdict(Amount)
        self._promised: defaultdict[UUID, Amount] = defaultdict(Amount)
        self._lock = threading.Lock()

    def add(self, folder_id: UUID, amount: Amount) -> None:
        """Count what was written."""
        with self._lock:
            self._written[folder_id] += amount

    def written(self, folder_id: UUID) -> Amount:
        """Return what was written since the last measurement."""
        return self._written.get(folder_id, NOTHING)

    def forget(self, folder_id: UUID, amount: Amount) -> None:
        """Subtract what a measurement has counted, or what was freed."""
        with self._lock:
            self._written[folder_id] -= amount

    @contextmanager
    def room(self, folder_id: UUID, held: Held, amount: Amount) -> Iterator[Room]:
        """Reserve an amount during the context. At its end the entries count as written, unless it failed, and unused
        bytes are released. Refuses with 507."""
        room = Room(self, folder_id, held)
        room.add(amount)
        try:
            yield room
            self.add(folder_id, Amount(0, room.left.entries))
        finally:
            self._take_back(folder_id, room.left)

    def reserve(self, folder_id: UUID, held: Held, more: Amount) -> None:
        """Reserve an amount. Refuses with 507 a reservation above the folder's limits."""
        with self._lock:
            self._check(folder_id, held, more)
            self._promised[folder_id] += more

    def require(self, folder_id: UUID, held: Held) -> None:
        """Refuse with 507 if the folder is above its limits."""
        with self._lock:
            self._check(folder_id, held, NOTHING)

    def settle(self, folder_id: UUID, amount: Amount) -> None:
        """Turn a reserved amount into a written one."""
        self._take_back(folder_id, amount)
        self.add(folder_id, amount)

    def _check(self, folder_id: UUID, held: Held, more: Amount) -> None:
        used, promised = self.written(folder_id), self._promised.get(folder_id, NOTHING)
        if held.size:
            used += Amount(held.size.bytes, held.size.entries)
        limit, most = held.meta.limit, held.meta.most_entries
        if limit is None or most is None:
            return
        # An empty file or a directory needs no bytes: it fits into a folder that programs have filled.
        if (more.bytes or not more.entries) and (used + promised + more).bytes - held.freed.bytes > limit:
            raise _too_large(limit, used.bytes, promised.bytes, more.bytes)
        if more.entries and (used + promised + more).entries - held.freed.entries > most:
            raise _too_many(most, used.entries + promised.entries)

    def _take_back(self, folder_id: UUID, amount: Amount) -> None:
        with self._lock:
            self._promised[folder_id] -= amount
            if self._promised[folder_id] == NOTHING:
                del self._promised[folder_id]


def _too_large(limit: int, used: int, promised: int, more: int) -> Refusal:
    others = f", and {promised} are on their way" if promised else ""
    message = (
        f"The folder holds {used} bytes of {limit}{others}; {more} more do not fit. "
        "Delete something and empty the trash, or ask for a larger limit."
    )
    return Refusal(507, "quota", message, limit=limit, used=used)


def _too_many(limit: int, used: int) -> Refusal:
    message = (
        f"The folder holds {used} files, directories and links of {limit} that its limit allows. Delete some and empty "
        "the trash, pack many small files into one archive, or ask for a larger limit."
    )
    return Refusal(507, "too-many-files", message, limit=limit, used=used)
