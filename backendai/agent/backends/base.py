"""The contract of a backend: it starts, watches and ends an agent's kernels; ``abilities`` has the optional parts.

Every method may be repeated: starting a running kernel succeeds, and so does ending one that is gone. Methods block;
several threads call them at once, but never two for the same kernel. A backend knows nothing of the portal: it gets a
``KernelSpec`` and returns plain values.
"""

from __future__ import annotations

import abc
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from backendai.agent.guest_host import GuestHost
from backendai.agent.service_host import ServiceHost
from backendai.core.errors import PlatformError
from backendai.core.slots import Slots
from backendai.wire.capabilities import Capability
from backendai.wire.messages import KernelSighting, KernelSpec, Note
from backendai.wire.pulls import RegistryAccess

NOBODY = RegistryAccess()


@dataclass(frozen=True, slots=True)
class Fetched:
    """Progress of a pull: the share from 0 to 1 (None: unknown), one sentence, and bytes. ``total_bytes`` may still
    grow."""

    share: float | None
    message: str
    done_bytes: int | None = None
    total_bytes: int | None = None


Progress = Callable[[Fetched], None]


class BackendError(PlatformError):
    """The engine did not answer, or refused; ``code`` becomes the kernel's reason."""

    code = "backend-error"


# Errors with these codes say nothing about the request: the agent tries again.
ENGINE_SILENT = ("backend-error", "engine-unreachable")


class ImageNotFound(BackendError):
    """The image is neither on the agent nor in its registry."""

    code = "image-not-found"


class StartFailed(BackendError):
    """The image exists, but the engine cannot start the kernel."""

    code = "failed-to-start"


class StaleGeneration(BackendError):
    """A container of a newer generation exists: the order to start this one is outdated."""

    code = "stale-generation"

    @classmethod
    def of(cls, known: int, ordered: int) -> StaleGeneration:
        """Return the error for an order of a generation older than the known one."""
        return cls("Generation {known} is here; {ordered} is out of date.", known=known, ordered=ordered)


class CommitFailed(BackendError):
    """The kernel cannot be saved as an image, or the image cannot be pushed."""

    code = "commit-failed"


class KernelGone(BackendError):
    """The agent has no such kernel (any more)."""

    code = "kernel-gone"


@dataclass(frozen=True, slots=True)
class Made:
    """An image saved from a kernel. ``digest``: of its manifest, if it was pushed."""

    size_bytes: int
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Started:
    """A kernel whose main process is alive. ``adopted``: it was running already."""

    container_id: str
    adopted: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """How a kernel's main process ended. ``reason``: ``exited``, ``out-of-memory``, ``agent-stopped``, or empty after
    an ordered stop; ``message``: one sentence with the numbers."""

    exit_code: int | None
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """The main process of a kernel ended. The event is a hint only: the agent then asks for the kernel's state."""

    kernel_id: UUID


@dataclass(frozen=True, slots=True)
class Overfull:
    """A kernel that exceeds a limit and must end; ``message`` has the numbers."""

    kernel_id: UUID
    message: str
    reason: str = "scratch-full"


class Terminal(abc.ABC):
    """A byte stream to a shell in a kernel: one asyncio task reads, and one writes."""

    @abc.abstractmethod
    async def read(self) -> bytes:
        """Return the next output; empty at the end of the shell."""

    @abc.abstractmethod
    async def write(self, data: bytes) -> None:
        """Send input; blocks while the buffer is full."""

    @abc.abstractmethod
    async def resize(self, rows: int, cols: int) -> None:
        """Set the size of the shell's terminal."""

    async def find(self, does: str, text: str) -> None:
        """Look through what tmux keeps of the shell: ``find``, ``previous``, ``next``, ``end``. Without tmux nothing
        happens."""
        del does, text

    @abc.abstractmethod
    async def close(self) -> None:
        """Disconnect: the attached client ends, a tmux session stays. May be called twice."""


class Backend(abc.ABC):
    """The kernels of one agent.

    ``deployment`` separates portals that share an engine; containers of others are never touched. ``services`` reaches
    ports of kernels; None if ports are not isolated from other users. ``guests`` executes code in kernels.
    ``capabilities`` are reported to the portal, in addition to the abilities; ``lacks`` are the abilities of the class
    that this instance does not have. ``starts_at_once``: how many starts it takes at once; None: as many as the
    machine's cores allow. ``is_here``: kernels run on this very machine, so that its load is theirs. Nine methods are
    required; the others have a default.
    """

    name: str
    starts_at_once: int | None = None
    is_here: bool = True
    capabilities: frozenset[Capability] = frozenset()
    lacks: frozenset[Capability] = frozenset()
    services: ServiceHost | None = None
    guests: GuestHost | None = None

    @abc.abstractmethod
    def capacity(self) -> Slots:
        """Return the machine's total ``cpu`` and ``mem``, before any reserve."""

    def architecture(self) -> str:
        """Return the architecture of what runs kernels, as Linux names it."""
        return platform.machine()

    def widest(self) -> list[Slots]:
        """Return what the largest machines behind this agent have for one kernel; empty: one may have the capacity."""
        return []

    def engine(self) -> str:
        """Return the container engine's name and version for display; empty if there is none."""
        return ""

    def storage(self) -> list[Path]:
        """Return the directories of images and homes that this process can see."""
        return []

    def notes(self) -> list[Note]:
        """Return warnings for administrators (weaker isolation, live-restore off), with advice."""
        return []

    def fault(self) -> str:
        """Return why no kernel can start on this agent, in one sentence; empty if kernels can start. ``notes`` contains
        the same sentence."""
        return ""

    def left_out(self, kernel_id: UUID) -> str:
        """Return which automatic folders the kernel lacks, and why, in one or two sentences; empty if it lacks none."""
        return ""

    @abc.abstractmethod
    def start(self, spec: KernelSpec) -> Started:
        """Get or adopt a kernel: on return its network, scratch and container exist and the main process is alive. An
        older generation's container is removed first.

        Raises StaleGeneration, ImageNotFound, StartFailed (after cleaning up), BackendError (the engine does not
        answer: the state is unknown).
        """

    @abc.abstractmethod
    def stop(self, kernel_id: UUID, *, grace: float) -> None:
        """End the main process: SIGTERM, and SIGKILL after ``grace`` seconds. Returns when the process has ended or is
        gone."""

    @abc.abstractmethod
    def ended(self, kernel_id: UUID) -> Ended | None:
        """Return how the main process ended, or None while it runs. Raises KernelGone if the kernel does not exist."""

    @abc.abstractmethod
    def read_log(self, kernel_id: UUID, *, limit: int) -> tuple[bytes, bool]:
        """Return the last ``limit`` bytes of output and whether more was cut off; b"" if the kernel is gone."""

    @abc.abstractmethod
    def remove(self, kernel_id: UUID) -> None:
        """Remove container, network, scratch and everything else of the kernel. A kernel that is gone counts as
        success."""

    @abc.abstractmethod
    def kernels(self) -> list[KernelSighting]:
        """Return every kernel of this deployment and agent, running or ended. Raises BackendError if the engine does
        not answer: unknown is not empty."""

    def overfull(self) -> list[Overfull]:
        """Return the kernels that exceed a disk limit which the file system does not enforce.

        Never blocks for long. Raises BackendError.
        """
        return []

    def sweep(self, live: set[UUID]) -> None:
        """Remove this deployment's networks, scratch folders and terminals without a kernel in ``live``."""
        return

    @abc.abstractmethod
    def watch(self) -> Iterator[KernelEvent]:
        """Yield an event whenever a main process ends; returns when the engine closes the stream."""

    @abc.abstractmethod
    def close(self) -> None:
        """Disconnect from the engine. Native kernels end, containers keep running."""
