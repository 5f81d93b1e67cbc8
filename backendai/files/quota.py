"""Limits of folders where the file system does not enforce them: by the last measurement and what was written since."""

from __future__ import annotations

from collections import defaultdict
from uuid import UUID

from backendai.files.refusals import Refusal
from backendai.files.tree import Meta, Size


class Ledger:
    """What was written to each folder since it was last measured; begins anew with each start of the server."""

    def __init__(self) -> None:
        self._written: defaultdict[UUID, int] = defaultdict(int)

    def add(self, folder_id: UUID, count: int) -> None:
        """Count bytes that were written."""
        self._written[folder_id] += count

    def written(self, folder_id: UUID) -> int:
        """Return the bytes since the last measurement."""
        return self._written.get(folder_id, 0)

    def forget(self, folder_id: UUID, count: int) -> None:
        """Take back what a measurement has seen."""
        self._written[folder_id] = max(0, self._written.get(folder_id, 0) - count)

    def require(self, folder_id: UUID, meta: Meta, size: Size | None, more: int) -> None:
        """Refuse with 507 what would exceed the folder's limit by ``more`` bytes."""
        if meta.limit is None:
            return
        used = (size.bytes if size else 0) + self.written(folder_id)
        if used + more > meta.limit:
            raise Refusal(
                507,
                "quota",
                f"The folder holds {used} bytes of {meta.limit}; {more} more do not fit. "
                "Delete something and empty the trash, or ask for a larger limit.",
                limit=meta.limit,
                used=used,
            )
