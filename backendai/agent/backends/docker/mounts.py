"""Mounts folders in containers: the engine binds them, and the running container is checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

from backendai.agent.backends.base import BackendError, StartFailed
from backendai.agent.backends.docker.disk.scratch import shares_mounts_with
from backendai.agent.backends.docker.engine import Engine, container_name
from backendai.agent.mounts.hosts import MountRules, usual_uids
from backendai.agent.mounts.kernel_mounts import Binds, KernelMounts
from backendai.agent.mounts.mounting import MountingBackend
from backendai.base.wire.messages import KernelSpec


class MountingContainers(MountingBackend):
    """A backend whose kernels are containers."""

    _engine: Engine

    def _processes(self, kernel_id: UUID) -> list[int]:
        """Return the container's main process."""
        if self._engine.socket_path is None:
            raise BackendError("The container engine of this agent is on another machine.")
        with self._engine.asking():
            return [int(self._engine.running(kernel_id)["State"]["Pid"])]


class DockerMounts:
    """Prepares a container's folders, and checks that the container has them."""

    def __init__(self, engine: Engine, mounts: KernelMounts, rules: Callable[[], MountRules]) -> None:
        self._engine, self._mounts, self._rules, self.hosts = engine, mounts, rules, mounts.hosts

    def prepare(self, spec: KernelSpec) -> Binds:
        """Return the bind mounts for the engine. Raises StartFailed."""
        return self._mounts.prepare(spec, self._rules())

    def also_left_out(self, kernel_id: UUID, text: str) -> None:
        """Save another message about a folder or feature that the kernel lacks."""
        self._mounts.also_left_out(kernel_id, text)

    def check(self, spec: KernelSpec) -> None:
        """Raise StartFailed if a running container's folders differ from the spec: missing, another directory, or
        writable instead of read-only. Reads only mount tables, not the storage."""
        if not spec.mounts:
            return
        found = self._engine.client.inspect_container(container_name(spec.kernel_id))
        lines = _table_of(found["State"]["Pid"])
        there = {one["Destination"]: bool(one["RW"]) for one in found["Mounts"]} | writable_places(lines)
        sources = {one["Destination"]: one.get("Source", "") for one in found["Mounts"]}
        here, inside = mounted_directories(_table_of("self")), mounted_directories(lines)
        for mount in spec.mounts:
            may_be_missing = mount.is_automatic and mount.target not in there
            ordered = here.get(sources.get(mount.target, ""))  # None: not a mount of this agent
            is_other = ordered is not None and inside.get(mount.target, ordered) != ordered
            if is_other or (not may_be_missing and there.get(mount.target) is not (mount.rights == "edit")):
                raise StartFailed(
                    "Folder {folder} is not mounted on {path} as ordered.",
                    folder=mount.folder_name,
                    path=mount.target,
                    code="mount-refused",
                )


def rules_of(engine: Engine) -> MountRules:
    """Return the mount rules of an agent with this engine."""
    if engine.socket_path is None:
        return MountRules(fault="The container engine of this agent is on another machine.")
    return MountRules(uids=usual_uids(), attaches=shares_mounts_with(engine.socket_path))


def body_of(binds: Binds) -> list[dict[str, Any]]:
    """Return the entries for the create call's body."""
    return [
        {
            "Type": "bind",
            "Source": bind.source,
            "Target": bind.target,
            "ReadOnly": bind.read_only,
            "BindOptions": {"NonRecursive": True, "Propagation": "rprivate"},  # mounts below would be writable
        }
        for bind in binds.all
    ]


def _table_of(process: int | str) -> list[str]:
    """Return the mount table of a process; empty if it cannot be read."""
    try:
        return Path(f"/proc/{process}/mountinfo").read_text().splitlines() if process else []
    except OSError:
        return []


def writable_places(lines: Iterable[str]) -> dict[str, bool]:
    """Return whether each mount of a mount table is writable, by path."""
    fields = [line.split(" ") for line in lines]
    return {_unescaped(one[4]): "ro" not in one[5].split(",") for one in fields}


def mounted_directories(lines: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return device and mounted directory of each mount of a mount table, by path."""
    fields = [line.split(" ") for line in lines]
    return {_unescaped(one[4]): (one[2], one[3]) for one in fields}


def _unescaped(path: str) -> str:
    for letter in (" ", "\t", "\n", "\\"):
        path = path.replace(f"\\{ord(letter):03o}", letter)
    return path
