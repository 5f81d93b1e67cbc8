"""Folders that people have filled: removed and measured by the system's own tools, which do not run out of stack or of
file descriptors however deep somebody nests, and follow no link."""

from __future__ import annotations

import subprocess
from pathlib import Path

_BLOCK = 1024


def remove_tree(folder: Path) -> None:
    """Remove the folder with all in it, but nothing of another file system; gone already is success, and what cannot
    be removed stays."""
    subprocess.run(["rm", "-rf", "--one-file-system", "--", str(folder)], capture_output=True, check=False)


def make_removable(folder: Path) -> None:
    """Open every folder in it, as far as they are ours; links are left alone."""
    subprocess.run(["chmod", "-R", "u+rwX", "--", str(folder)], capture_output=True, check=False)


def bytes_under(folder: Path) -> int:
    """Return the bytes of disk that the folder takes; 0 when it is gone."""
    return _measured(folder, "-skx") * _BLOCK


def files_under(folder: Path) -> int:
    """Return how many files and folders it holds, itself included; 0 when it is gone."""
    return _measured(folder, "-sx", "--inodes")


def _measured(folder: Path, *options: str) -> int:
    measured = subprocess.run(["du", *options, "--", str(folder)], capture_output=True, text=True, check=False)
    number = measured.stdout.partition("\t")[0]
    return int(number) if number.isdigit() else 0
