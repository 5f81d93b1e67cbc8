"""Measures native kernels: sums over their process trees, in one pass over the machine's processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from uuid import UUID

import psutil

from backendai.agent.backends.base import KernelReading
from backendai.agent.backends.native.folder import KernelFolder
from backendai.agent.backends.shared.cgroup_counters import memory_kills


def readings_of(folders: Iterable[KernelFolder]) -> dict[UUID, KernelReading]:
    """Return the counters of running kernels, without the network, which is the machine's."""
    children: dict[int, list[psutil.Process]] = defaultdict(list)
    for process in psutil.process_iter(["ppid"]):
        children[process.info["ppid"]].append(process)
    found = {}
    for folder in folders:
        runner = folder.runner()
        if runner is not None:
            found[folder.kernel_id] = _sum(folder, _tree(runner, children))
    return found


def _tree(root: int, children: Mapping[int, list[psutil.Process]]) -> list[psutil.Process]:
    """Return the processes below the supervisor, which is not part of the kernel."""
    found, todo = list[psutil.Process](), [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += [process.pid for process in below]
    return found


def _sum(kernel: KernelFolder, processes: Iterable[psutil.Process]) -> KernelReading:
    spent, memory, read, written = 0.0, 0, 0, 0
    told = False
    for process in processes:
        try:
            with process.oneshot():
                times, rss = process.cpu_times(), process.memory_info().rss
            spent += times.user + times.system + times.children_user + times.children_system
            memory += rss
            disk = process.io_counters()
            read, written, told = read + disk.read_bytes, written + disk.write_bytes, True
        except psutil.Error:  # ended meanwhile, or access denied
            continue
    return KernelReading(
        run=kernel.container_id(),
        cpu_seconds=spent,
        mem_bytes=memory,
        io_read=read if told else None,
        io_write=written if told else None,
        memory_kills=_memory_kills(kernel),
    )


def _memory_kills(kernel: KernelFolder) -> int | None:
    """Return how many programs the kernel's control group has ended; None without one, where the whole kernel ends."""
    counts = [memory_kills(Path(group)) for group in kernel.read("launch").get("cgroups", [])]
    return max((count for count in counts if count is not None), default=None)
