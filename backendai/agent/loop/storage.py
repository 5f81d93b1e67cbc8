"""Measures the free disk space of the file systems that hold images and home folders."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from backendai.base.core.slots import format_size
from backendai.base.wire.messages import Note

LOW = "disk-low"


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system: a folder on it, and its free and total bytes."""

    folder: Path
    free: int
    total: int

    def is_below(self, reserve: float) -> bool:
        """Return whether less than this share (percent) is free."""
        return 100 * self.free < reserve * self.total


def tightest(folders: Iterable[Path]) -> Disk | None:
    """Return the file system with the smallest free share among those of these folders; None if no folder exists."""
    found = [disk for folder in folders if (disk := _look_at(folder)) is not None]
    return min(found, key=lambda disk: disk.free / disk.total, default=None)


def note_of(disk: Disk, reserve: float) -> Note:
    """Return the note for administrators about a disk whose free space is below the reserve."""
    return Note(
        code=LOW,
        message=f"{format_size(disk.free)} of {format_size(disk.total)} are free at {disk.folder}, less than the "
        f"reserve of {reserve:g} %: only sessions whose image is here start.",
        fix="Remove images and containers that nobody needs (docker system prune), or give the machine more disk.",
    )


def _look_at(folder: Path) -> Disk | None:
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return Disk(folder, usage.free, usage.total) if usage.total else None
