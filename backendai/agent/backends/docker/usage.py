"""Measures containers from their control groups' files, or asks the engine if these are not visible."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from docker import APIClient
from docker.errors import NotFound

from backendai.agent.backends.base import KernelReading
from backendai.agent.backends.docker.engine import Engine
from backendai.agent.backends.docker.state import OOM
from backendai.agent.backends.shared.cgroup_counters import folders_of, network_bytes, read
from backendai.base.wire.messages import KernelSighting

_ASKING_SECONDS = 5.0  # for all containers of one round, if files cannot be read


@dataclass(frozen=True, slots=True)
class _Place:
    """A container's main process, and its control groups by controller; without groups only the engine has its
    counters."""

    pid: int
    folders: dict[str, Path]


class ContainerUsage:
    """Measures containers. Asks the engine once for each container's process, then reads files. For one thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._places: dict[str, _Place] = {}
        self._kills: dict[str, tuple[int, int]] = {}  # by container, their number and the time of the last one

    def readings(self, kernels: Sequence[KernelSighting]) -> dict[UUID, KernelReading]:
        """Return the counters of these containers, without ended ones and those exceeding the time of 5 s. Raises
        BackendError."""
        here = {kernel.container_id for kernel in kernels}
        self._places = {key: place for key, place in self._places.items() if key in here}
        self._kills = {key: known for key, known in self._kills.items() if key in here}
        deadline, found = time.monotonic() + _ASKING_SECONDS, {}
        with self._engine.asking(seconds=_ASKING_SECONDS) as client:
            for kernel in kernels:
                if time.monotonic() < deadline and (reading := self._reading(client, kernel.container_id)):
                    found[kernel.kernel_id] = reading
        return found

    def _reading(self, client: APIClient, container_id: str) -> KernelReading | None:
        try:
            place = self._places.get(container_id) or self._find(client, container_id)
            if place is None:
                return None
            self._places[container_id] = place
            if place.folders:
                return _from_files(container_id, place)
            answer = client.stats(container_id, stream=False, one_shot=True)
            return _from_engine(container_id, answer, self._memory_kills(client, container_id, answer["read"]))
        except NotFound:
            return None

    def _memory_kills(self, client: APIClient, container_id: str, now: str) -> int:
        """Return how many programs the container's memory limit has ended, by the engine's events. The engine keeps the
        newest 256 of all containers: those from before this agent's start may be missing. ``now``: by its clock, so
        that the answer ends at once."""
        until = int(datetime.fromisoformat(f"{now[:19]}+00:00").timestamp())
        filters = {"type": ["container"], "container": [container_id], "event": [OOM]}
        response = client.get(
            f"{client.base_url}/v{client.api_version}/events",
            params={"since": 1, "until": until, "filters": json.dumps(filters)},
            timeout=_ASKING_SECONDS,
        )
        response.raise_for_status()
        number, last = self._kills.get(container_id, (0, 0))
        times = [int(json.loads(line)["timeNano"]) for line in response.text.splitlines() if line]
        later = [time for time in times if time > last]
        self._kills[container_id] = number + len(later), max(later, default=last)
        return number + len(later)

    def _find(self, client: APIClient, container_id: str) -> _Place | None:
        """Return the container's process and control groups; None while it does not run."""
        pid = int(client.inspect_container(container_id)["State"]["Pid"])
        if not pid:
            return None
        if self._engine.socket_path is None:  # the pid belongs to another machine
            return _Place(pid, {})
        try:
            folders = folders_of(pid)
        except OSError:  # not visible, as the agent runs in a container
            return _Place(pid, {})
        # A process with this pid outside the container's groups is on another machine, or started later.
        ours = {name: folder for name, folder in folders.items() if container_id in str(folder) and folder.is_dir()}
        return _Place(pid, ours)


def _from_files(container_id: str, place: _Place) -> KernelReading | None:
    reading = read(container_id, place.folders)
    if reading is None:
        return None
    received, sent = network_bytes(place.pid) or (None, None)
    return replace(reading, net_rx=received, net_tx=sent)


def _from_engine(container_id: str, answer: dict[str, Any], memory_kills: int) -> KernelReading:
    used = (answer.get("cpu_stats") or {}).get("cpu_usage", {}).get("total_usage")
    memory = answer.get("memory_stats") or {}
    details = memory.get("stats") or {}
    idle = details.get("total_inactive_file", details.get("inactive_file", 0))
    networks = (answer.get("networks") or {}).values()
    blocks = (answer.get("blkio_stats") or {}).get("io_service_bytes_recursive")
    return KernelReading(
        run=container_id,
        cpu_seconds=None if used is None else used / 1e9,
        mem_bytes=max(memory["usage"] - idle, 0) if "usage" in memory else None,
        net_rx=sum(one["rx_bytes"] for one in networks) if networks else None,
        net_tx=sum(one["tx_bytes"] for one in networks) if networks else None,
        io_read=_blocks(blocks, "read"),
        io_write=_blocks(blocks, "write"),
        memory_kills=memory_kills,
    )


def _blocks(entries: list[dict[str, Any]] | None, kind: str) -> int | None:
    return None if entries is None else sum(one["value"] for one in entries if one["op"].lower() == kind)
