"""Marks in an agent's folder about its backend, each an empty file.

``ran-containers``: the agent has run sessions in containers. While the engine is down they may still run, so the agent
must not switch to native processes.

``native-until-image``: until an image exists, this agent runs native processes instead of containers. ``bin/up`` allows
it only where no backend was chosen; its image builder sets and removes the mark. When it changes, an agent without
kernels ends and is restarted with the other backend. It stays one agent, so that no slot is offered twice.
"""

from __future__ import annotations

from pathlib import Path

BACKENDS = ("auto", "docker", "process", "kubernetes", "qemu", "simulated")
_CONTAINERS, _NATIVE = "ran-containers", "native-until-image"


def has_run_containers(data: Path) -> bool:
    """Return whether the agent of this folder has used a container engine since ``clear_containers``."""
    return (data / _CONTAINERS).exists()


def note_containers(data: Path) -> None:
    """Record that the agent uses a container engine."""
    (data / _CONTAINERS).touch()


def clear_containers(data: Path) -> None:
    """Delete the record, as an administrator chose another backend; kernels in containers are given up."""
    (data / _CONTAINERS).unlink(missing_ok=True)


def is_marked_native(data: Path) -> bool:
    """Return whether the agent of this folder should run native processes."""
    return (data / _NATIVE).exists()


def mark_native(data: Path, *, wanted: bool) -> None:
    """Set or remove the mark."""
    if wanted:
        (data / _NATIVE).touch()
    else:
        (data / _NATIVE).unlink(missing_ok=True)
