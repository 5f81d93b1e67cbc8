"""Starts a native kernel's supervisor, and waits until the kernel's main process runs."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path
from typing import Any

from backendai.agent.accelerators.inventory import Accelerators
from backendai.agent.backends.base import StartFailed
from backendai.agent.backends.native import cgroup as process_cgroup
from backendai.agent.backends.native.folder import KernelFolder
from backendai.agent.backends.native.launch import environment_of, furnish, launch_order
from backendai.agent.backends.native.log import read_tail
from backendai.agent.backends.native.places import Places
from backendai.agent.backends.native.sandbox import Place, open_to_all, probe
from backendai.agent.backends.native.supervisors import Supervisors, free_user
from backendai.agent.backends.shared.slow_machine import with_cause
from backendai.agent.mounts.kernel_mounts import Binds, KernelMounts
from backendai.agent.mounts.rules import KERNEL_USER, MountRules
from backendai.base.core.slots import MILLI, Slots
from backendai.base.wire.messages import KernelSpec

_RUNNER = Path(__file__).with_name("runner.py")
_COMPLAINT = 2000  # bytes of output quoted for a failed start


class NativeStarter:
    """Starts kernels with the isolation and limits that this machine offers (tested once)."""

    def __init__(
        self, data: Path, accelerators: Accelerators, mounts: KernelMounts, environments: Path | None = None
    ) -> None:
        self._accelerators, self._mounts, self._environments = accelerators, mounts, environments
        self.isolation = probe()
        self.cgroups = process_cgroup.find_parents()
        self.places = Places(data, self.isolation)
        self._lock = threading.Lock()
        self._supervisors = Supervisors([str(_RUNNER)])

    def mount_rules(self) -> MountRules:
        """Return the mount rules of native kernels. With an agent of root, all kernels that mount folders have one
        user, who owns the files."""
        if self.isolation.bwrap is not None:
            root = self.isolation.root
            return MountRules(uids=frozenset({KERNEL_USER if root else os.geteuid()}), attaches=root)
        if self.isolation.root:
            fault = "Without bubblewrap an agent of root cannot keep folders apart: install bubblewrap."
            return MountRules(fault=fault)
        return MountRules(uids=frozenset({os.geteuid()}), read_only=False)

    def start(self, spec: KernelSpec, folder: KernelFolder) -> None:
        """Create the folder and start the kernel in it. Raises StartFailed after removing what was created."""
        try:
            self._prepare(spec, folder)
            if not self._supervisors.start(folder, spec.create_timeout):
                raise StartFailed(
                    "The kernel does not start: {complaint}", complaint=self._complaint(folder, spec.create_timeout)
                )
        except OSError as error:
            self._undo(folder)
            raise StartFailed("The kernel does not start: {error}", error=str(error)) from error
        except StartFailed:
            self._undo(folder)
            raise

    def reap(self) -> None:
        """Reap supervisors that have ended."""
        self._supervisors.reap()

    def _prepare(self, spec: KernelSpec, folder: KernelFolder) -> None:
        binds = self._mounts.prepare(spec, self.mount_rules())
        folder.path.mkdir(mode=0o700)
        if self.isolation.walks_alone:
            folder.path.chmod(0o711)
        folder.write("spec", spec.model_dump(mode="json", exclude={"files", "bootstrap", "keys"}))
        with self._lock:  # until the chosen user id is saved
            place = self._place(folder, binds)
            furnish(place, spec, self.isolation)
            folder.write("launch", self._launch(spec, place))

    def _place(self, folder: KernelFolder, binds: Binds) -> Place:
        runtime = None
        if self.isolation.bwrap is None:
            runtime = Path(tempfile.mkdtemp(prefix="krn-", dir="/tmp"))
        uid = (binds.uid or free_user(folder.kernel_id, self._users_taken())) if self.isolation.root else None
        return Place(folder.path.resolve(), uid, runtime, tuple(binds.all), self._environments_for(uid))

    def _environments_for(self, uid: int | None) -> Path | None:
        """Return the folder of environments; None if the kernel cannot reach it."""
        found = self._environments
        if found is None or not found.is_dir():
            return None
        return found.resolve() if self.isolation.bwrap is not None or uid is None or open_to_all(found) else None

    def _users_taken(self) -> set[int | None]:
        return {KernelFolder(path).read("launch").get("uid") for path in self.places.folders()}

    def _launch(self, spec: KernelSpec, place: Place) -> dict[str, Any]:
        slots = Slots.parse(spec.slots)
        memory = slots["mem"] // MILLI or None
        name = f"backendai-{spec.kernel_id}"
        cgroups = process_cgroup.make(self.cgroups, name, slots, pids=spec.pids)
        grant = self._accelerators.grant(spec, native=True)
        return launch_order(spec, place, self.isolation, grant) | {
            "environment": environment_of(place, self.isolation),
            "uid": place.uid,
            "runtime": str(place.runtime) if place.runtime else None,
            "log_bytes": spec.log_bytes,
            "cgroups": [str(cgroup) for cgroup in cgroups],
            "cgroup_memory": memory if cgroups else None,
            "memory": None if cgroups else memory,
        }

    def _complaint(self, folder: KernelFolder, timeout: float) -> str:
        output = read_tail(folder.log, _COMPLAINT)[0] + read_tail(folder.path / "runner.log", _COMPLAINT)[0]
        said = folder.read("exit").get("failed") or output.decode(errors="replace").strip()
        return said or with_cause(f"its main process was not alive after {timeout:g} s.")

    def _undo(self, folder: KernelFolder) -> None:
        self._mounts.remove(folder.kernel_id)
        if folder.path.exists():
            folder.kill()
            folder.remove()
        self.reap()
