"""The common part of backends whose kernels each have a folder and a supervisor, which outlive the agent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Protocol
from uuid import UUID

from backendai.agent.backends.abilities import Imaging, Measuring, Streaming
from backendai.agent.backends.base import Ended, KernelEvent, KernelGone, StaleGeneration, Started
from backendai.agent.backends.native import log as process_log
from backendai.agent.backends.native.folder import KernelFolder
from backendai.agent.mounts.kernel_mounts import KernelMounts
from backendai.base.wire.messages import KernelSighting, KernelSpec

_LOOK_INTERVAL = 0.2
_PATIENCE_AFTER_GRACE = 15.0


class KernelStarter(Protocol):
    """Starts the supervisors of kernels."""

    def start(self, spec: KernelSpec, folder: KernelFolder) -> None:
        """Create the folder and start the kernel in it. Raises StartFailed after removing what was created."""

    def reap(self) -> None:
        """Reap supervisors that have ended."""


class KernelPlaces(Protocol):
    """The folders of kernels."""

    def find(self, kernel_id: UUID) -> Path:
        """Return the kernel's folder; the path for a new one if there is none."""

    def for_new(self) -> Path:
        """Return the folder for new kernels. Raises StartFailed if there is none."""

    def folders(self) -> Iterator[Path]:
        """Yield all entries of the folders."""


class SupervisedBackend(Imaging, Streaming, Measuring):
    """Finds kernels by their folders, including those of a killed agent."""

    def __init__(
        self, starter: KernelStarter, places: KernelPlaces, mounts: KernelMounts, *, deployment: str, agent: str
    ) -> None:
        self._supervisors, self._kernel_places, self._mounts = starter, places, mounts
        self._deployment, self._agent = deployment, agent
        self._locks = [threading.Lock() for _ in range(64)]
        self._closed = threading.Event()

    def start(self, spec: KernelSpec) -> Started:
        with self._locks[spec.kernel_id.int % len(self._locks)]:
            folder = KernelFolder(self._kernel_places.find(spec.kernel_id))
            known = folder.spec()
            if known and known.generation > spec.generation:
                raise StaleGeneration.of(known.generation, spec.generation)
            if known and known.generation == spec.generation and folder.started():
                return Started(folder.container_id(), adopted=True)
            self._clear(folder)
            folder = KernelFolder(self._kernel_places.for_new() / str(spec.kernel_id))
            self._supervisors.start(spec, folder)
            return Started(folder.container_id(), adopted=False)

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
            self._supervisors.reap()
            ended = {folder.kernel_id for folder in self._folders() if folder.started() and not folder.running()}
            yield from (KernelEvent(kernel_id) for kernel_id in ended - told)
            told = ended

    async def follow_log(self, kernel_id: UUID, *, tail: int | None, follow: bool) -> AsyncIterator[bytes]:
        folder = await asyncio.to_thread(self._find, kernel_id)
        if folder is None or not folder.log.exists():
            raise KernelGone("Kernel {kernel_id} not found on this agent.", kernel_id=kernel_id)
        over: Callable[[], bool] = lambda: not folder.running()  # noqa: E731
        async for piece in process_log.follow(folder.log, tail=tail, follow=follow, ended=over):
            yield piece

    def _find(self, kernel_id: UUID) -> KernelFolder | None:
        folder = KernelFolder(self._kernel_places.find(kernel_id))
        return folder if self._ours(folder) else None

    def _processes(self, kernel_id: UUID) -> list[int]:
        return sorted(self._running(kernel_id).processes())

    def _running(self, kernel_id: UUID) -> KernelFolder:
        """Return the folder of a running kernel. Raises KernelGone."""
        folder = self._find(kernel_id)
        if folder is None or not folder.running():
            raise KernelGone("Kernel {kernel_id} is not running on this agent.", kernel_id=kernel_id)
        return folder

    def _folders(self) -> list[KernelFolder]:
        named = [path for path in self._kernel_places.folders() if len(path.name) == len(str(UUID(int=0)))]
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

    def _end(self, folder: KernelFolder, *, grace: float, reason: str, message: str) -> None:
        runner = folder.runner()
        if runner is None:
            return
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
        self._supervisors.reap()
