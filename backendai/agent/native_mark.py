"""A mark in an agent's folder: until an image is there, this agent runs native processes instead of containers.

``bin/up`` allows it only where nobody chose a backend; its image builder sets and removes the mark. An agent that holds
no kernel ends itself when the mark changes, and is started again with the other backend: one agent, so that no slot is
offered twice.
"""

from __future__ import annotations

from pathlib import Path

_MARK = "native-until-image"


def is_marked_native(data: Path) -> bool:
    """Return whether the agent of this folder is to run native processes."""
    return (data / _MARK).exists()


def mark_native(data: Path, *, wanted: bool) -> None:
    """Set or remove the mark."""
    if wanted:
        (data / _MARK).touch()
    else:
        (data / _MARK).unlink(missing_ok=True)
