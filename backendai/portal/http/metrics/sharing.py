"""Prepares the folder in which the processes of a web server count. Imports nothing that counts."""

from __future__ import annotations

import os
import shutil
import socket
import time
from multiprocessing import parent_process
from pathlib import Path

import psutil

FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # read when prometheus_client is imported
_KEPT_SECONDS = 86400.0


def share_counts(data: Path) -> None:
    """Name the folder for the counts of this process and its siblings, and remove those of servers that have ended.

    Nothing for a web server of one process.
    """
    if parent_process() is None:
        return
    folders, parent = data / "metrics", psutil.Process(os.getppid())
    # Process ids come again, and servers in containers may share the data folder.
    ours = folders / f"{socket.gethostname()}-{parent.pid}-{parent.create_time():.0f}"
    ours.mkdir(parents=True, exist_ok=True)
    os.environ[FOLDER] = str(ours)
    for other in folders.iterdir():
        if other != ours and _newest(other) < time.time() - _KEPT_SECONDS:
            shutil.rmtree(other, ignore_errors=True)


def _newest(folder: Path) -> float:
    """Return when something in the folder was last written; each request writes."""
    try:
        return max(one.stat().st_mtime for one in [folder, *folder.iterdir()])
    except OSError:  # a sibling removes it
        return 0.0
