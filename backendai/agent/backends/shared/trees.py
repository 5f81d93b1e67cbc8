"""Removes and measures folders that users have filled, and lists those named by ids.

Uses the system's own tools, which follow no links, and handle any depth without exhausting stack or descriptors.
"""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from uuid import UUID

_BLOCK = 1024


def remove_tree(folder: Path) -> None:
    """Remove the folder on its own file system. Does nothing if it is gone; files that cannot be removed stay."""
    subprocess.run(["rm", "-rf", "--one-file-system", "--", str(folder)], capture_output=True, check=False)


def make_removable(folder: Path) -> None:
    """Give the owner all rights to the folders and files in it; skips other users' files and links."""
    subprocess.run(["chmod", "-R", "u+rwX", "--", str(folder)], capture_output=True, check=False)


def ids_in(folder: Path) -> set[UUID]:
    """Return the ids in the names of the folder's entries, whatever follows the first dot; empty if it is gone. Raises
    OSError."""
    found = set()
    for path in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(ValueError):
            found.add(UUID(path.name.partition(".")[0]))
    return found


def bytes_under(folder: Path) -> int:
    """Return the disk use of the folder in bytes; 0 if it is gone."""
    return _measured(folder, "-skx") * _BLOCK


def files_under(folder: Path) -> int:
    """Return the number of files and folders in it, including itself; 0 if it is gone."""
    return _measured(folder, "-sx", "--inodes")


def _measured(folder: Path, *options: str) -> int:
    measured = subprocess.run(["du", *options, "--", str(folder)], capture_output=True, text=True, check=False)
    number = measured.stdout.partition("\t")[0]
    return int(number) if number.isdigit() else 0
