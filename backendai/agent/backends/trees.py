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
    measured = subprocess.run(["du", "-skx", "--", str(folder)], capture_output=True, text=True, check=False)
    kibibytes = measured.stdout.partition("\t")[0]
    return int(kibibytes) * _BLOCK if kibibytes.isdigit() else 0
