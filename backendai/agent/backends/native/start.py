"""Starts a native kernel's supervisor, and waits until the kernel's main process runs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from backendai.agent.accelerators.inventory import Accelerators
from backendai.agent.backends.native.folder import KernelFolder
from backendai.agent.backends.native.launch import environment_of, furnish, launch_order
from backendai.agent.backends.native.logs import read_tail
from backendai.agent.backends.native.places import NativePlaces
from backendai.agent.backends.native.sandbox import NativePlace, open_to_all, probe
from backendai.agent.backends.native.supervisors import SupervisedStarter
from backendai.agent.mounts.homes import unpack_home
from backendai.agent.mounts.hosts import KERNEL_USER, MountRules
from backendai.agent.mounts.kernel_mounts import Binds, KernelMounts
from backendai.base.core.slots import MILLI, Slots
from backendai.base.wire.messages import KernelSpec

_RUNNER = Path(__file__).with_name("runner.py")
_COMPLAINT = 2000  # bytes of output quoted for a failed start


class NativeStarter(SupervisedStarter):
    """Starts kernels with the isolation and limits that this machine offers (tested once)."""

    places: NativePlaces

    def __init__(
        self,
        data: Path,
        accelerators: Accelerators,
        mounts: KernelMounts,
        environments: Path | None,
        *,
        deployment: str,
        clear: Callable[[KernelFolder], None],
    ) -> None:
        self._accelerators, self._environments = accelerators, environments
        self.isolation = probe()
        places = NativePlaces(data, self.isolation)
        super().__init__(places, mounts, [str(_RUNNER)], deployment=deployment, clear=clear)

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

    def _prepare(self, spec: KernelSpec, folder: KernelFolder) -> None:
        binds = self.mounts.prepare(spec, self.mount_rules())
        self._make_folder(spec, folder)
        if self.isolation.walks_alone:
            folder.path.chmod(0o711)
        with self._choosing:
            place = self._place(folder, binds)
            furnish(place, spec, self.isolation, partial(unpack_home, self.mounts.hosts, spec, owner=place.uid))
            folder.write("launch", self._launch(spec, place))

    def _place(self, folder: KernelFolder, binds: Binds) -> NativePlace:
        runtime = None
        if self.isolation.bwrap is None:
            runtime = Path(tempfile.mkdtemp(prefix="krn-", dir="/tmp"))
        uid = (binds.uid or self._free_user(folder.kernel_id)) if self.isolation.root else None
        return NativePlace(folder.path.resolve(), uid, runtime, tuple(binds.all), self._environments_for(uid))

    def _environments_for(self, uid: int | None) -> Path | None:
        """Return the folder of environments; None if the kernel cannot reach it."""
        found = self._environments
        if found is None or not found.is_dir():
            return None
        return found.resolve() if self.isolation.bwrap is not None or uid is None or open_to_all(found) else None

    def _launch(self, spec: KernelSpec, place: NativePlace) -> dict[str, Any]:
        memory = Slots.parse(spec.slots)["mem"] // MILLI or None
        limits = self._limits(spec, pids=spec.pids)
        grant = self._accelerators.grant(spec, native=True)
        return launch_order(spec, place, self.isolation, grant) | limits | {
            "environment": environment_of(place, self.isolation),
            "uid": place.uid,
            "runtime": str(place.runtime) if place.runtime else None,
            "cgroup_memory": memory if limits["cgroups"] else None,
            "memory": None if limits["cgroups"] else memory,
        }  # fmt: skip

    def _last_words(self, folder: KernelFolder) -> str:
        output = read_tail(folder.log, _COMPLAINT)[0] + read_tail(folder.path / "runner.log", _COMPLAINT)[0]
        return output.decode(errors="replace").strip()
