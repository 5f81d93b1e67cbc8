"""Finds the kernels to which processes of the machine belong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from uuid import UUID

_CONTAINER = re.compile(r"[0-9a-f]{64}")
_NATIVE = re.compile(r"backendai-([0-9a-f]{8}-[0-9a-f-]{27})")
_MARK = b"BACKENDAI_KERNEL_ID="


def kernels_of(pids: Iterable[int], kernels: Mapping[str, UUID], proc: Path = Path("/proc")) -> dict[int, UUID]:
    """Return the kernel of each process, without processes of no kernel. ``kernels``: this agent's kernels by container
    id.

    The control group determines the kernel. The mark in the environment, for native kernels without a control group,
    counts only outside all containers, as programs can set it.
    """
    ours = set(kernels.values())
    found = {}
    for pid in pids:
        kernel = _kernel_of(proc / str(pid), kernels)
        if kernel in ours:
            found[pid] = kernel
    return found


def _kernel_of(process: Path, kernels: Mapping[str, UUID]) -> UUID | None:
    try:
        groups = (process / "cgroup").read_text(errors="replace")
        containers = _CONTAINER.findall(groups)
        if containers:
            return next((kernels[container] for container in reversed(containers) if container in kernels), None)
        if native := _NATIVE.search(groups):
            return UUID(native[1])
        marks = [word for word in (process / "environ").read_bytes().split(b"\0") if word.startswith(_MARK)]
        return UUID(marks[-1].removeprefix(_MARK).decode()) if marks else None
    except (OSError, ValueError):
        return None
