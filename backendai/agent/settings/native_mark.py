"""A mark in an agent's folder: until an image exists, this agent runs native processes instead of containers.

``bin/up`` allows it only where no backend was chosen; its image builder sets and removes the mark. When the mark
changes, an agent without kernels ends and is restarted with the other backend. It stays one agent, so that no slot is
offered twice.
"""

from __future__ import annotations

from pathlib import Path

_MARK = "native-until-image"


def is_marked_native(data: Path) -> bool:
    """Return whether the agent of this folder should run native processes."""
    return (data / _MARK).exists()


def mark_native(data: Path, *, wanted: bool) -> None:
    """Set or remove the mark."""
    if wanted:
        (data / _MARK).touch()
    else:
        (data / _MARK).unlink(missing_ok=True)
