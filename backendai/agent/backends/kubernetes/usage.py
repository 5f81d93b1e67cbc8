"""Measures pods by a command that reads their control group, as the cluster's metrics lack counters.

One command per kernel and round, up to eight in parallel.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

from backendai.agent.backends.base import SH, TOOLS, BackendError, KernelReading
from backendai.agent.backends.kubernetes.api.client import Api
from backendai.agent.backends.kubernetes.api.names import pod_name
from backendai.agent.backends.kubernetes.api.streams import output_of
from backendai.base.wire.messages import KernelSighting

_AT_ONCE = 8
_SECONDS = 5.0
_ROUND_SECONDS = 20.0
# Control groups of version 2, then 1; missing files print nothing.
_READ = rf"""
{TOOLS}
cd /sys/fs/cgroup 2>/dev/null || exit 0
first() {{ for file in "$@"; do [ -r "$file" ] && {{ cat "$file"; return; }}; done; }}
[ -r cpu.stat ] && grep usage_usec cpu.stat
[ -r cpuacct/cpuacct.usage ] && echo "usage_nsec $(cat cpuacct/cpuacct.usage)"
echo "memory $(first memory.current memory/memory.usage_in_bytes)"
echo "idle $(first memory.stat memory/memory.stat | grep -E '^(total_)?inactive_file ' | tail -n 1)"
echo "kills $(first memory.events memory/memory.oom_control | grep -E '^oom_kill ' | tail -n 1)"
awk -F'[: ]+' '/eth0:/ {{ for (i = 1; i <= NF; i++) if ($i == "eth0") print "net", $(i + 1), $(i + 9) }}' /proc/net/dev
""".strip()


class PodUsage:
    """Reads one agent's pods. For one thread."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def readings(self, kernels: Sequence[KernelSighting]) -> dict[UUID, KernelReading]:
        """Return the counters of these kernels, without ended ones and those exceeding the time of 20 s."""
        deadline = time.monotonic() + _ROUND_SECONDS

        def read(kernel: KernelSighting) -> KernelReading | None:
            if time.monotonic() > deadline or not kernel.running:
                return None
            try:
                output, _ = output_of(self._api, pod_name(kernel.kernel_id), [SH, "-c", _READ], seconds=_SECONDS)
            except BackendError:
                return None
            return reading_of(kernel.container_id, output.decode(errors="replace"))

        with ThreadPoolExecutor(_AT_ONCE) as threads:
            found = zip(kernels, threads.map(read, kernels), strict=True)
            return {kernel.kernel_id: reading for kernel, reading in found if reading is not None}


def reading_of(run: str, text: str) -> KernelReading | None:
    """Return the measurement in the command's output; None if there is none."""
    said: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, *values = line.split()
        said[name] = values
    seconds = _seconds(said)
    memory, idle = _whole(said, "memory", 0), _whole(said, "idle", -1)
    if seconds is None and memory is None:
        return None
    return KernelReading(
        run=run,
        cpu_seconds=seconds,
        mem_bytes=None if memory is None else max(memory - (idle or 0), 0),
        net_rx=_whole(said, "net", 0),
        net_tx=_whole(said, "net", 1),
        memory_kills=_whole(said, "kills", 1),
    )


def _seconds(said: Mapping[str, list[str]]) -> float | None:
    micro, nano = _whole(said, "usage_usec", 0), _whole(said, "usage_nsec", 0)
    if nano is not None:
        return nano / 1e9
    return None if micro is None else micro / 1e6


def _whole(said: Mapping[str, list[str]], name: str, place: int) -> int | None:
    values = said.get(name) or []
    try:
        return int(values[place])
    except (IndexError, ValueError):
        return None
