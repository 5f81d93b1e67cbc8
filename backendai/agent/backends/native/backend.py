"""Kernels as native processes of this machine, for machines without a container engine.

Each kernel is a process tree under its own supervisor (``runner``), which outlives a killed agent: the next
agent finds its kernels by their folders. ``close`` ends them and records the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from uuid import UUID

from backendai.agent.accelerators.inventory import Accelerators
from backendai.agent.backends.base import (
    NOBODY,
    BackendError,
    Fetched,
    ImageNotFound,
    KernelReading,
    Progress,
    Started,
    Terminal,
)
from backendai.agent.backends.native.folder import KernelFolder
from backendai.agent.backends.native.guests import NativeGuests
from backendai.agent.backends.native.notes import describe
from backendai.agent.backends.native.services import NativeServices, with_address
from backendai.agent.backends.native.start import NativeStarter
from backendai.agent.backends.native.supervised import SupervisedBackend
from backendai.agent.backends.native.terminal import PtyTerminal, request_find, request_terminal
from backendai.agent.backends.native.usage import readings_of
from backendai.agent.backends.shared.cluster_files import lacking_here
from backendai.agent.mounts.homes import StoredHomes, lacks_homes
from backendai.agent.mounts.hosts import StorageHosts
from backendai.agent.mounts.kernel_mounts import KernelMounts
from backendai.base.core.messages import Message
from backendai.base.core.service_ports import NATIVE_SERVICES
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.images import RegistryAccess
from backendai.base.wire.messages import ImageSighting, KernelSighting, KernelSpec, Note

IMAGE = "process/python"
_IMAGES = "process/"
_GRACE_AT_CLOSE = 5.0
_LABELS = {
    "ai.backend.kernelspec": "1",
    "ai.backend.features": "batch query tty user-input",
    "ai.backend.runtime-type": "python",
    "ai.backend.runtime-path": "python3",
    "ai.backend.service-ports": NATIVE_SERVICES,
    "ai.backend.role": "COMPUTE",
    "ai.backend.resource.min.cpu": "0.1",
    "ai.backend.resource.min.mem": "64m",
}


class NativeBackend(SupervisedBackend, StoredHomes):
    """Keeps kernels in the folders of ``Places``. Its only image stands for the machine's programs. ``serves``:
    replicas may run here, although every user of the machine reaches their ports."""

    name = "process"
    _starter: NativeStarter
    capabilities = frozenset(
        {
            Capability.NATIVE,
            Capability.APPS,
            Capability.CLUSTER_NETWORK,
            Capability.CLUSTER_FILES,
            Capability.DEVICES,
            Capability.EXECUTION,
        }
    )

    def __init__(
        self,
        data: Path,
        *,
        deployment: str,
        agent: str,
        accelerators: Accelerators | None = None,
        hosts: StorageHosts | None = None,
        serves: bool = False,
        environments: Path | None = None,
    ) -> None:
        mounts = KernelMounts(data, hosts)
        if environments is not None:  # mounted now, so that running kernels see the first build
            with contextlib.suppress(OSError):
                environments.mkdir(parents=True, exist_ok=True)
        self._data = data
        starter = NativeStarter(
            data, accelerators or Accelerators(), mounts, environments, deployment=deployment, clear=self._clear
        )
        super().__init__(starter, deployment=deployment, agent=agent)
        self._places = starter.places
        self._homes = lambda kernel_id: self._places.find(kernel_id).path / "home"
        self.guests = NativeGuests(self._running, self._find)
        self.services = NativeServices(self._running, environments)
        self._serves, self.lacks = serves, lacks_homes()
        if serves:
            self.capabilities = self.capabilities | {Capability.SERVING}

    def freeze(self, kernel_id: UUID) -> None:
        self._running(kernel_id).freeze()

    def thaw(self, kernel_id: UUID) -> None:
        if folder := self._find(kernel_id):
            folder.thaw()

    def storage(self) -> list[Path]:
        return [self._data, self._places.new]

    def notes(self) -> list[Note]:
        self._places.look()
        return describe(self._starter.isolation, hard_limits=bool(self._starter.cgroups), places=self._places)

    def fault(self) -> str:
        return self._places.fault

    def images(self) -> list[ImageSighting]:
        digest = f"python-{platform.python_version()}"
        return [ImageSighting(reference=IMAGE, digest=digest, architecture=platform.machine(), labels=_LABELS)]

    def has_image(self, reference: str) -> bool:
        return reference.startswith(_IMAGES)

    def pull(self, reference: str, *, timeout: float, progress: Progress, access: RegistryAccess = NOBODY) -> None:
        if not self.has_image(reference):
            raise ImageNotFound(
                "{image} is not here: this agent has no container engine, only {available}.",
                image=reference,
                available=IMAGE,
            )
        progress(Fetched(1.0, "There is nothing to fetch."))

    def start(self, spec: KernelSpec) -> Started:
        if not self.has_image(spec.image):
            raise ImageNotFound(
                "{image} is not here: this agent has no container engine, only {available}.",
                image=spec.image,
                available=IMAGE,
            )
        return super().start(with_address(spec) if self._serves else spec)

    def left_out(self, kernel_id: UUID) -> str:
        folder = self._find(kernel_id)
        spec = folder.spec() if folder else None
        has_accounts = self._starter.isolation.has_accounts
        no_ssh = lacking_here(has_accounts=has_accounts) if spec and spec.cluster_size > 1 else ""
        return " ".join(filter(None, (super().left_out(kernel_id), no_ssh)))

    def readings(self, kernels: Sequence[KernelSighting]) -> dict[UUID, KernelReading]:
        return readings_of(self._places.find(kernel.kernel_id) for kernel in kernels)

    async def open_terminal(self, kernel_id: UUID, *, name: str, rows: int, cols: int) -> Terminal:
        folder = await asyncio.to_thread(self._running, kernel_id)
        file = await asyncio.to_thread(request_terminal, folder.path, name=name, rows=rows, cols=cols)
        return PtyTerminal(file, partial(request_find, folder.path, name))

    def close(self) -> None:
        self._closed.set()
        self._mounts.hosts.stop()
        message = Message("The agent was stopped, and its native kernels ended with it.")
        running = [folder for folder in self._folders() if folder.running()]
        end = partial(self._end, grace=_GRACE_AT_CLOSE, reason="agent-stopped", message=message)
        try:
            with ThreadPoolExecutor(max_workers=32) as threads:
                list(threads.map(end, running))
        except OSError as error:
            raise BackendError("Not every kernel could be ended: {error}", error=str(error)) from error
        self._starter.reap()
        self._places.tidy()

    def _clear(self, folder: KernelFolder) -> None:
        super()._clear(folder)
        if self._closed.is_set():  # the end was reported, and nothing starts here any more
            self._places.tidy()
