"""A backend in memory: kernels are entries of a dictionary; gates hold calls up, faults make them fail."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event, RLock
from uuid import UUID

from backendai.agent.backends.abilities import Committing, HomeStoring, Imaging, Streaming
from backendai.agent.backends.base import (
    NOBODY,
    BackendError,
    Ended,
    Fetched,
    ImageNotFound,
    KernelEvent,
    KernelGone,
    Progress,
    SavedImage,
    StaleGeneration,
    Started,
    Terminal,
)
from backendai.base.core.slots import Slots
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.homes import StoredHome, StoreResult, StoreWork
from backendai.base.wire.images import CommitSpec, RegistryAccess
from backendai.base.wire.messages import ImageSighting, KernelSighting, KernelSpec, Note
from backendai.base.wire.usage import HomeLook
from tests.patience import patient


@dataclass
class Entry:
    """One kernel that exists; ``ended`` None: it runs."""

    generation: int
    ended: Ended | None = None
    log: bytes = b"hello\n"
    frozen: bool = False


class MemoryTerminal(Terminal):
    """A shell that echoes; output can be put in from the test, b"" ends it."""

    def __init__(self) -> None:
        self.output: asyncio.Queue[bytes] = asyncio.Queue()
        self.sizes: list[tuple[int, int]] = []
        self.read_bytes = 0
        self.closed = False

    async def read(self) -> bytes:
        data = await self.output.get()
        self.read_bytes += len(data)
        return data

    async def write(self, data: bytes) -> None:
        await self.output.put(data)

    async def resize(self, rows: int, cols: int) -> None:
        self.sizes.append((rows, cols))

    async def close(self) -> None:
        self.closed = True


class MemoryBackend(Imaging, Committing, Streaming, HomeStoring):
    """``said`` is every call that changes something, in order."""

    name = "memory"
    capabilities = frozenset({Capability.IMAGES, Capability.LISTED_IMAGES, Capability.PUSH})

    def __init__(self, said: list[str] | None = None) -> None:
        self.entries: dict[UUID, Entry] = {}
        self.homes: dict[UUID, HomeLook] = {}
        self.home_folders: dict[UUID, Path] = {}
        self.said: list[str] = said if said is not None else []
        self.pulled = {"python"}
        self.accounts: list[str] = []
        self.registry = {"python", "big"}
        self.down = False
        self.failure: Exception | None = None
        self.start_gate, self.pull_gate = Event(), Event()
        self.start_gate.set()
        self.pull_gate.set()
        self.starting = self.most_starting = 0
        self.swept: list[set[UUID]] = []
        self.events: queue.Queue[KernelEvent | None] = queue.Queue()
        self.terminals: list[MemoryTerminal] = []
        self.on_close: Callable[[], None] = lambda: None
        self.lock = RLock()

    def exit(self, kernel_id: UUID, code: int = 0) -> None:
        self.entries[kernel_id].ended = Ended(code, "exited", f"exit code {code}")

    def capacity(self) -> Slots:
        self._answer()
        return Slots({"cpu": 8000, "mem": 16 * 2**30 * 1000})

    def notes(self) -> list[Note]:
        return []

    def images(self) -> list[ImageSighting]:
        return [ImageSighting(reference=name) for name in sorted(self.pulled)]

    def has_image(self, reference: str) -> bool:
        self._answer()
        return reference in self.pulled

    def pull(self, reference: str, *, timeout: float, progress: Progress, access: RegistryAccess = NOBODY) -> None:
        self.said.append("pull")
        self.accounts.append(access.username)
        while not self.pull_gate.wait(0.01):
            progress(Fetched(0.5, "half of it", 2**30, 2**31))
        if reference not in self.registry:
            raise ImageNotFound(f"{reference} is nowhere.")
        self.pulled.add(reference)

    def home(self, kernel_id: UUID) -> HomeLook | None:
        self._answer()
        return self.homes.get(kernel_id)

    def home_folder(self, kernel_id: UUID) -> Path | None:
        return self.home_folders.get(kernel_id)

    def freeze(self, kernel_id: UUID) -> None:
        self._answer()
        self.said.append("freeze")
        self.entries[kernel_id].frozen = True

    def thaw(self, kernel_id: UUID) -> None:
        self._answer()
        self.said.append("thaw")
        if kernel_id in self.entries:
            self.entries[kernel_id].frozen = False

    def store_home(self, work: StoreWork, progress: Progress) -> StoreResult:
        self.said.append("store")
        while not self.pull_gate.wait(0.01):
            progress(Fetched(0.5, "half of it", 2**30, 2**31))
        if self.failure:
            raise self.failure
        return StoreResult(size_bytes=2048, entries=3)

    def drop_part(self, home: StoredHome) -> None:
        self.said.append("drop")

    def commit(self, spec: CommitSpec) -> SavedImage:
        self.said.append("commit")
        if self.failure:
            raise self.failure
        if spec.kernel_id not in self.entries:
            raise KernelGone("The session ended before the image was created.")
        self.pulled.add(spec.reference)
        return SavedImage(size_bytes=1000)

    def push_image(self, spec: CommitSpec, *, progress: Progress) -> str:
        self.said.append("push")
        self.accounts.append(spec.access.username)
        while not self.pull_gate.wait(0.01):
            progress(Fetched(0.5, "half of it", 2**30, 2**31))
        return "sha256:" + "d" * 64

    def drop_image(self, reference: str) -> bool:
        self.said.append("drop")
        self.pulled.discard(reference)
        return True

    def start(self, spec: KernelSpec) -> Started:
        with self.lock:
            self.said.append("start")
            self.starting += 1
            self.most_starting = max(self.most_starting, self.starting)
        try:
            self.start_gate.wait(patient(10))
            return self._start(spec)
        finally:
            with self.lock:
                self.starting -= 1

    def _start(self, spec: KernelSpec) -> Started:
        self._answer()
        with self.lock:
            entry = self.entries.get(spec.kernel_id)
            if entry and entry.generation > spec.generation:
                raise StaleGeneration("newer")
            if entry and entry.generation == spec.generation:
                return Started(f"c-{spec.kernel_id}", adopted=True)
            if spec.image not in self.pulled:
                raise ImageNotFound(f"{spec.image} is not here")
            self.said.append("create")
            self.entries[spec.kernel_id] = Entry(spec.generation)
        return Started(f"c-{spec.kernel_id}", adopted=False)

    def stop(self, kernel_id: UUID, *, grace: float) -> None:
        self._answer()
        self.said.append("stop")
        entry = self.entries.get(kernel_id)
        if entry and entry.ended is None:
            entry.ended = Ended(143, "", "")

    def ended(self, kernel_id: UUID) -> Ended | None:
        self._answer()
        if kernel_id not in self.entries:
            raise KernelGone("gone")
        return self.entries[kernel_id].ended

    def read_log(self, kernel_id: UUID, *, limit: int) -> tuple[bytes, bool]:
        entry = self.entries.get(kernel_id)
        log = entry.log if entry else b""
        return log[-limit:], len(log) > limit

    def remove(self, kernel_id: UUID) -> None:
        self._answer()
        self.said.append("remove")
        self.entries.pop(kernel_id, None)

    def kernels(self) -> list[KernelSighting]:
        self._answer()
        with self.lock:
            return [
                KernelSighting(
                    kernel_id=key,
                    generation=entry.generation,
                    running=entry.ended is None,
                    frozen=entry.frozen,
                    exit_code=entry.ended.exit_code if entry.ended else None,
                )
                for key, entry in self.entries.items()
            ]

    def sweep(self, live: set[UUID]) -> None:
        self.swept.append(live)

    def watch(self) -> Iterator[KernelEvent]:
        while (event := self.events.get()) is not None:
            yield event

    async def open_terminal(self, kernel_id: UUID, *, name: str, rows: int, cols: int) -> Terminal:
        terminal = MemoryTerminal()
        terminal.sizes.append((rows, cols))
        self.terminals.append(terminal)
        return terminal

    async def follow_log(self, kernel_id: UUID, *, tail: int | None, follow: bool) -> AsyncIterator[bytes]:
        lines = self.entries[kernel_id].log.splitlines(keepends=True)
        for line in lines if tail is None else lines[len(lines) - tail :]:
            yield line
        while follow:
            await asyncio.sleep(3600)

    def close(self) -> None:
        self.said.append("close")
        self.on_close()
        self.events.put(None)

    def _answer(self) -> None:
        if self.failure:
            raise self.failure
        if self.down:
            raise BackendError("the engine is down")
