"""Remembers that a node has run sessions in containers: an engine that is away for a while may run them still, and a
node that went on with native processes would give them up."""

from __future__ import annotations

from pathlib import Path

_MARK = "ran-containers"


def has_run_containers(data: Path) -> bool:
    """Return whether the agent of this folder has worked with a container engine since it was last told not to."""
    return (data / _MARK).exists()


def note_containers(data: Path) -> None:
    """Remember that it does."""
    (data / _MARK).touch()


def clear_containers(data: Path) -> None:
    """Somebody has chosen another backend: what ran in containers is given up."""
    (data / _MARK).unlink(missing_ok=True)
