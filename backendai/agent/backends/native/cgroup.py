"""Hard limits of native kernels: one cgroup directory per kernel (version 1 or 2), if this process can create it."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from uuid import uuid4

from backendai.base.core.slots import MILLI, Slots

MOUNT = Path("/sys/fs/cgroup")
FREEZE_SECONDS = 5.0
_PERIOD = 100_000  # microseconds
_SMALLEST_QUOTA = 1_000
_V1_CONTROLLERS = ("memory", "cpu", "pids")


def find_parents(mount: Path = MOUNT) -> list[Path]:
    """Return the parent directories for kernels' cgroups; empty if memory cannot be limited."""
    if (mount / "cgroup.controllers").exists():
        return [parent for parent in _candidates_v2(mount) if _gives_file(parent, "memory.max")][:1]
    own = _own_paths()
    parents = [mount / name / own.get(name, "/").lstrip("/") for name in _V1_CONTROLLERS]
    usable = [parent for parent in parents if _gives_file(parent, "cgroup.procs")]
    return usable if parents[0] in usable else []


def make(parents: list[Path], name: str, slots: Slots, *, pids: int) -> list[Path]:
    """Create the kernel's cgroups with its limits, and return them. Raises OSError."""
    memory = slots["mem"] // MILLI
    quota = max(slots["cpu"] * _PERIOD // MILLI, _SMALLEST_QUOTA)
    made = []
    for parent in parents:
        directory = parent / name
        directory.mkdir(exist_ok=True)
        made.append(directory)
        if memory:
            for file in ("memory.max", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
                _write_if_there(directory / file, str(memory))
            _write_if_there(directory / "memory.swap.max", "0")
        if slots["cpu"]:
            _write_if_there(directory / "cpu.max", f"{quota} {_PERIOD}")
            _write_if_there(directory / "cpu.cfs_quota_us", str(quota))
        _write_if_there(directory / "pids.max", str(pids))
    return made


def members(directories: list[Path]) -> set[int]:
    """Return the processes in a kernel's directories."""
    found: set[int] = set()
    for directory in directories:
        with contextlib.suppress(OSError):
            found |= {int(pid) for pid in (directory / "cgroup.procs").read_text().split()}
    return found


def hold(directories: list[Path], *, still: bool) -> bool:
    """Freeze or thaw the processes in a kernel's directories; returns False if Linux has no freezer there (version 1).
    Raises OSError, also if not all are frozen in time."""
    freezers = [directory for directory in directories if (directory / "cgroup.freeze").exists()]
    for directory in freezers:
        (directory / "cgroup.freeze").write_text(str(int(still)))
    deadline = time.monotonic() + FREEZE_SECONDS
    while still and any("frozen 0" in (directory / "cgroup.events").read_text() for directory in freezers):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {FREEZE_SECONDS:g} s")
        time.sleep(0.01)
    return bool(freezers)


def _candidates_v2(mount: Path) -> list[Path]:
    own = mount / _own_paths().get("", "/").lstrip("/")
    candidates = [own.parent] if own != mount else []  # a sibling: a cgroup with processes cannot be a parent
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):
            (mount / "backendai").mkdir(exist_ok=True)
            _ask_for_controllers(mount)
            candidates.insert(0, mount / "backendai")
    for candidate in candidates:
        _ask_for_controllers(candidate)
    return candidates


def _ask_for_controllers(directory: Path) -> None:
    for controller in ("+memory", "+pids", "+cpu"):
        with contextlib.suppress(OSError):
            (directory / "cgroup.subtree_control").write_text(controller)


def _own_paths() -> dict[str, str]:
    """Return this process's cgroup by controller; the controller of version 2 is ""."""
    paths: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    return paths


def _gives_file(parent: Path, name: str) -> bool:
    """Return whether a new directory below ``parent`` can be created and has the control file ``name``."""
    if not parent.is_dir():
        return False
    trial = parent / f"backendai-trial-{uuid4().hex[:8]}"
    try:
        trial.mkdir()
    except OSError:
        return False
    try:
        return os.access(trial / name, os.W_OK)
    finally:
        trial.rmdir()


def _write_if_there(path: Path, value: str) -> None:
    if path.exists():
        path.write_text(value)
