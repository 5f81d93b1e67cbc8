"""Kernels as native processes of this machine, for places without a container engine.

Each kernel is a process tree under a small supervisor of its own (``process_runner``), which outlives the agent: an
agent that was killed finds its kernels again by their folders. ``close`` ends them, with a reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import select
import signal
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from uuid import UUID

import psutil

from backendai.agent.accelerators.inventory import Accelerators
from backendai.agent.backends import process_log
from backendai.agent.backends.abilities import Imaging, Measuring, Streaming
from backendai.agent.backends.base import (
    NOBODY,
    BackendError,
    Ended,
    Fetched,
    ImageNotFound,
    KernelEvent,
    KernelGone,
    Progress,
    StaleGeneration,
    Started,
    Terminal,
)
from backendai.agent.backends.cluster_files import lacking_here
from backendai.agent.backends.process_folder import KernelFolder
from backendai.agent.backends.process_guest import ProcessGuests
from backendai.agent.backends.process_notes import describe
from backendai.agent.backends.process_ports import with_address
from backendai.agent.backends.process_services import ProcessServices
from backendai.agent.backends.process_start import Starter
from backendai.agent.backends.process_terminal import PtyTerminal, request_terminal
from backendai.agent.backends.process_usage import readings_of
from backendai.agent.mounts.hosts import StorageHosts
from backendai.agent.mounts.kernel_mounts import KernelMounts
from backendai.agent.mounts.mounting import MountingBackend
from backendai.agent.readings import Reading
from backendai.core.messages import Message
from backendai.core.service_ports import NATIVE_SERVICES
from backendai.core.slots import MILLI, Slots
from backendai.wire.capabilities import Capability
from backendai.wire.messages import ImageSighting, KernelSighting, KernelSpec, Note
from backendai.wire.pulls import RegistryAccess

IMAGE = "process/python"
_IMAGES = "process/"
_LOOK_INTERVAL = 0.2
_GRACE_AT_CLOSE = 5.0
_PATIENCE_AFTER_GRACE = 15.0
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


class ProcessBackend(MountingBackend, Imaging, Streaming, Measuring):
    """Keeps everything in the folders of ``Places``. Its only image stands for the programs of the machine. ``serves``:
    replicas of endpoints may run here, whose ports everybody on the machine reaches."""

    name = "process"
    capabilities = frozenset(
        {Capability.NATIVE, Capability.APPS, Capability.CLUSTER_NETWORK, Capability.DEVICES, Capability.EXECUTION}
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
        self._mounts = KernelMounts(data, hosts)
        if environments is not None:  # kernels that start before the first build see it come
            with contextlib.suppress(OSError):
                environments.mkdir(parents=True, exist_ok=True)
        self._data, self._deployment, self._agent = data, deployment, agent
        self._starter = Starter(data, accelerators or Accelerators(), self._mounts, environments)
        self._places, self._rules = self._starter.places, self._starter.mount_rules
        self._homes = lambda kernel_id: self._places.find(kernel_id) / "home"
        self._locks = [threading.Lock() for _ in range(64)]
        self._closed = threading.Event()
        self.guests = ProcessGuests(self._find)
        self.services = ProcessServices(self._find, environments)
        self._serves = serves
        if serves:
            self.capabilities = self.capabilities | {Capability.SERVING}

    def capacity(self) -> Slots:
        cores = len(os.sched_getaffinity(0))
        return Slots({"cpu": cores * MILLI, "mem": psutil.virtual_memory().total * MILLI})

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
        with self._locks[spec.kernel_id.int % len(self._locks)]:
            folder = KernelFolder(self._places.find(spec.kernel_id))
            known = folder.spec()
            if known and known.generation > spec.generation:
                raise StaleGeneration.of(known.generation, spec.generation)
            if known and known.generation == spec.generation and folder.started():
                return Started(folder.container_id(), adopted=True)
            self._clear(folder)
            folder = KernelFolder(self._places.for_new() / str(spec.kernel_id))
            self._starter.start(with_address(spec) if self._serves else spec, folder)
            return Started(folder.container_id(), adopted=False)

    def left_out(self, kernel_id: UUID) -> str:
        folder = self._find(kernel_id)
        spec = folder.spec() if folder else None
        no_ssh = lacking_here() if spec and spec.cluster_size > 1 else ""
        return " ".join(filter(None, (super().left_out(kernel_id), no_ssh)))

    def stop(self, kernel_id: UUID, *, grace: float) -> None:
        if folder := self._find(kernel_id):
            self._end(folder, grace=grace, reason="", message="")

    def ended(self, kernel_id: UUID) -> Ended | None:
        folder = self._find(kernel_id)
        if folder is None or not folder.started():
            raise KernelGone("There is no kernel {kernel_id} on this agent.", kernel_id=kernel_id)
        return folder.ended()

    def read_log(self, kernel_id: UUID, *, limit: int) -> tuple[bytes, bool]:
        folder = self._find(kernel_id)
        return process_log.read_tail(folder.log, limit) if folder else (b"", False)

    def remove(self, kernel_id: UUID) -> None:
        if folder := self._find(kernel_id):
            self._clear(folder)

    def kernels(self) -> list[KernelSighting]:
        return [seen for folder in self._folders() if (seen := folder.sighting())]

    def readings(self, kernels: Sequence[KernelSighting]) -> dict[UUID, Reading]:
        return readings_of(KernelFolder(self._places.find(kernel.kernel_id)) for kernel in kernels)

    def sweep(self, live: set[UUID]) -> None:
        """Kernels that ended keep their folder until ``remove``; what goes here are starts that came to nothing."""
        self._mounts.sweep(live | {folder.kernel_id for folder in self._folders()})
        for folder in self._folders():
            busy = self._locks[folder.kernel_id.int % len(self._locks)]
            if folder.kernel_id in live or folder.started() or not busy.acquire(blocking=False):
                continue
            try:
                if not folder.started():
                    self._clear(folder)
            finally:
                busy.release()

    def watch(self) -> Iterator[KernelEvent]:
        told = {folder.kernel_id for folder in self._folders() if not folder.running()}
        while not self._closed.wait(_LOOK_INTERVAL):
            self._starter.reap()
            ended = {folder.kernel_id for folder in self._folders() if folder.started() and not folder.running()}
            yield from (KernelEvent(kernel_id) for kernel_id in ended - told)
            told = ended

    async def open_terminal(self, kernel_id: UUID, *, name: str, rows: int, cols: int) -> Terminal:
        folder = await asyncio.to_thread(self._find, kernel_id)
        if folder is None or not folder.running():
            raise KernelGone("There is no kernel {kernel_id} running on this agent.", kernel_id=kernel_id)
        return PtyTerminal(await asyncio.to_thread(request_terminal, folder.path, name=name, rows=rows, cols=cols))

    async def follow_log(self, kernel_id: UUID, *, tail: int | None, follow: bool) -> AsyncIterator[bytes]:
        folder = await asyncio.to_thread(self._find, kernel_id)
        if folder is None or not folder.log.exists():
            raise KernelGone("There is no kernel {kernel_id} on this agent.", kernel_id=kernel_id)
        over = lambda: not folder.running()  # noqa: E731
        async for piece in process_log.follow(folder.log, tail=tail, follow=follow, ended=over):
            yield piece

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

    def _find(self, kernel_id: UUID) -> KernelFolder | None:
        folder = KernelFolder(self._places.find(kernel_id))
        return folder if self._ours(folder) else None

    def _processes(self, kernel_id: UUID) -> list[int]:
        folder = self._find(kernel_id)
        if folder is None or not folder.running():
            raise KernelGone("This kernel does not run on this agent any more.")
        return sorted(folder.processes())

    def _folders(self) -> list[KernelFolder]:
        named = [path for path in self._places.folders() if len(path.name) == len(str(UUID(int=0)))]
        return [folder for path in named if self._ours(folder := KernelFolder(path))]

    def _ours(self, folder: KernelFolder) -> bool:
        spec = folder.spec()
        return spec is not None and (spec.deployment, spec.agent) == (self._deployment, self._agent)

    def _clear(self, folder: KernelFolder) -> None:
        self._end(folder, grace=0.0, reason="", message="")
        if folder.read("launch") and not folder.read("exit"):
            folder.kill()
        self._mounts.remove(folder.kernel_id)
        folder.remove()
        if self._closed.is_set():  # the portal has heard of its end, and nothing starts here any more
            self._places.tidy()

    def _end(self, folder: KernelFolder, *, grace: float, reason: str, message: str) -> None:
        runner = folder.runner()
        if runner is None:
            return
        try:
            handle = os.pidfd_open(runner)
        except ProcessLookupError:
            return
        try:
            if folder.runner() == runner:  # still: the handle is of no later process with this number
                with contextlib.suppress(OSError):  # on a full disk the supervisor ends it by an order of its own
                    folder.write("stop", {"grace": grace, "reason": reason, "message": message})
                signal.pidfd_send_signal(handle, signal.SIGTERM)
            gone, _, _ = select.select([handle], [], [], grace + _PATIENCE_AFTER_GRACE)
        except ProcessLookupError:
            gone = [handle]
        finally:
            os.close(handle)
        if not gone:
            folder.kill()
        self._starter.reap()
