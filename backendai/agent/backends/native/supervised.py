"""The common part of backends whose kernels each have a folder and a supervisor, which outlive the agent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from uuid import UUID

import psutil

from backendai.agent.backends.abilities import Imaging, Measuring, Streaming
from backendai.agent.backends.base import Ended, KernelEvent, KernelGone, Started
from backendai.agent.backends.native import logs as process_log
from backendai.agent.backends.native.folder import KernelFolder
from backendai.agent.backends.native.supervisors import SupervisedStarter
from backendai.agent.mounts.mounting import MountingBackend
from backendai.base.core.slots import MILLI, Slots
from backendai.base.wire.messages import KernelSighting, KernelSpec

_LOOK_INTERVAL = 0.2
_PATIENCE_AFTER_GRACE = 15.0


class SupervisedBackend(MountingBackend, Imaging, Streaming, Measuring):
    """Finds kernels by their folders, including those of a killed agent."""

    def __init__(self, starter: SupervisedStarter, *, deployment: str, agent: str) -> None:
        self._starter, self._mounts, self._rules = starter, starter.mounts, starter.mount_rules
        self._deployment, self._agent = deployment, agent
        self._closed = threading.Event()

    def capacity(self) -> Slots:
        cores = len(os.sched_getaffinity(0))
        return Slots({"cpu": cores * MILLI, "mem": psutil.virtual_memory().total * MILLI})

    def start(self, spec: KernelSpec) -> Started:
        return self._starter.start(spec)

    def stop(self, kernel_id: UUID, *, grace: float) -> None:
        if folder := self._find(kernel_id):
            self._end(folder, grace=grace, reason="", message="")

    def ended(self, kernel_id: UUID) -> Ended | None:
        folder = self._find(kernel_id)
        if folder is None or not folder.started():
            raise KernelGone("Kernel {kernel_id} not found on this agent.", kernel_id=kernel_id)
        return folder.ended()

    def read_log(self, kernel_id: UUID, *, limit: int) -> tuple[bytes, bool]:
        folder = self._find(kernel_id)
        return process_log.read_tail(folder.log, limit) if folder else (b"", False)

    def remove(self, kernel_id: UUID) -> None:
        if folder := self._find(kernel_id):
            self._clear(folder)

    def kernels(self) -> list[KernelSighting]:
        return [seen for folder in self._folders() if (seen := folder.sighting())]

    def sweep(self, live: set[UUID]) -> None:
        """Remove the leftovers of failed starts. Ended kernels keep their folders until ``remove``."""
        self._mounts.sweep(live | {folder.kernel_id for folder in self._folders()})
        for folder in self._folders():
            if folder.kernel_id in live or folder.started():
                continue
            with self._starter.locks.held(folder.kernel_id, waits=False) as is_held:
                if is_held and not folder.started():
                    self._clear(folder)

    def watch(self) -> Iterator[KernelEvent]:
        reported = {folder.kernel_id for folder in self._folders() if not folder.running()}
        while not self._closed.wait(_LOOK_INTERVAL):
            self._starter.reap()
            ended = {folder.kernel_id for folder in self._folders() if folder.started() and not folder.running()}
            yield from (KernelEvent(kernel_id) for kernel_id in ended - reported)
            reported = ended

    async def follow_log(self, kernel_id: UUID, *, tail: int | None, follow: bool) -> AsyncIterator[bytes]:
        folder = await asyncio.to_thread(self._find, kernel_id)
        if folder is None or not folder.log.exists():
            raise KernelGone("Kernel {kernel_id} not found on this agent.", kernel_id=kernel_id)
        over: Callable[[], bool] = lambda: not folder.running()  # noqa: E731
        async for piece in process_log.follow(folder.log, tail=tail, follow=follow, ended=over):
            yield piece

    def _find(self, kernel_id: UUID) -> KernelFolder | None:
        folder = self._starter.places.find(kernel_id)
        return folder if self._ours(folder) else None

    def _processes(self, kernel_id: UUID) -> list[int]:
        return sorted(self._running(kernel_id).processes())

    def _running(self, kernel_id: UUID) -> KernelFolder:
        """Return the folder of a running kernel. Raises KernelGone."""
        folder = self._find(kernel_id)
        if folder is None or not folder.running():
            raise KernelGone("This kernel does not run any more.")
        return folder

    def _folders(self) -> list[KernelFolder]:
        return [folder for folder in self._starter.places.folders() if self._ours(folder)]

    def _ours(self, folder: KernelFolder) -> bool:
        spec = folder.spec()
        return spec is not None and (spec.deployment, spec.agent) == (self._deployment, self._agent)

    def _clear(self, folder: KernelFolder) -> None:
        self._end(folder, grace=0.0, reason="", message="")
        if folder.read("launch") and not folder.read("exit"):
            folder.kill()
        self._mounts.remove(folder.kernel_id)
        folder.remove()

    def _end(self, folder: KernelFolder, *, grace: float, reason: str, message: str) -> None:
        runner = folder.runner()
        if runner is None:
            return
        if grace > 0:
            folder.thaw()
        try:
            handle = os.pidfd_open(runner)
        except ProcessLookupError:
            return
        try:
            if folder.runner() == runner:  # checked again: the pid was not reused before the handle was opened
                with contextlib.suppress(OSError):  # on a full disk the supervisor uses its own default order
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
