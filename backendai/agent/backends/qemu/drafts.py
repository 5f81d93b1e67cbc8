"""Folders for unfinished files. Their agent holds a lock on each, so that those of a killed agent are recognized."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from backendai.agent.backends.shared.trees import remove_tree

_PREFIX = ".draft-"
_NEW_SECONDS = 60.0  # an agent locks its folder directly after creating it


@contextlib.contextmanager
def draft_folder(parent: Path) -> Iterator[Path]:
    """Yield a new folder below ``parent``, and delete it at the end. Raises OSError."""
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent) as made, _opened(Path(made)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(made)


def sweep_drafts(parent: Path) -> None:
    """Delete the folders that killed agents have left. Several agents may share ``parent``."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), _opened(folder) as lock:  # an OSError: it is locked or gone
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if time.time() - folder.stat().st_mtime > _NEW_SECONDS:
                remove_tree(folder)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield lock
    finally:
        os.close(lock)
