"""A node for tests: the agent's parts put together around a portal and a backend in memory."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

from backendai.agent.kernel_index import KernelIndex
from backendai.agent.kernel_queues import KernelQueues
from backendai.agent.loop.epoch import EpochGuard
from backendai.agent.loop.kernels import Kernels
from backendai.agent.loop.machine import Machine
from backendai.agent.loop.manifests import Manifests
from backendai.agent.loop.sync import SyncLoop
from tests.agent.memory_backend import MemoryBackend
from tests.agent.portal import AGENT, FakePortal
from tests.patience import patient


class Node:
    """Kernels and sync loop without threads of their own: a test calls ``sync`` when it wants one."""

    def __init__(
        self, portal: FakePortal | None = None, backend: MemoryBackend | None = None, data: Path | None = None
    ) -> None:
        if data is None:
            self._folder = TemporaryDirectory()
            data = Path(self._folder.name)
        self.portal = portal or FakePortal()
        self.backend = backend or MemoryBackend(self.portal.said)
        self.lanes = KernelQueues(starts=4, pulls=2, ends=4)
        self.roster = KernelIndex()
        self.connected = Event()
        self.connected.set()
        manifests = Manifests(data / "manifests")
        machine = Machine(self.backend, offered=lambda slots: slots, gateway_url="http://node:1")
        self.kernels = Kernels(
            self.backend,
            self.portal,
            agent=AGENT,
            lanes=self.lanes,
            roster=self.roster,
            manifests=manifests,
            on_pulled=machine.images_changed,
        )
        self.loop = SyncLoop(
            self.backend,
            self.portal,
            self.kernels,
            lanes=self.lanes,
            roster=self.roster,
            machine=machine,
            epoch=EpochGuard(data),
            manifests=manifests,
            interval=0.05,
            connected=self.connected.is_set,
            on_answer=lambda answer: None,
        )

    def sync(self, *, settle: bool = True) -> None:
        self.loop.sync_once()
        if settle:
            self.settle()

    def settle(self) -> None:
        assert self.lanes.wait_idle(patient(10))
