"""Records that an agent has run sessions in containers. While the engine is down they may still run, so the agent must
not switch to native processes."""

from __future__ import annotations

from pathlib import Path

_MARK = "ran-containers"


def has_run_containers(data: Path) -> bool:
    """Return whether the agent of this folder has used a container engine since ``clear_containers``."""
    return (data / _MARK).exists()


def note_containers(data: Path) -> None:
    """Record that the agent uses a container engine."""
    (data / _MARK).touch()


def clear_containers(data: Path) -> None:
    """Delete the record, as an administrator chose another backend; kernels in containers are given up."""
    (data / _MARK).unlink(missing_ok=True)
