"""The contract of a backend: what starts, watches and ends kernels on a node; ``abilities`` has what only some can do.

Every method may be repeated: starting what runs is success, ending what is gone is success. Methods block and are
called from several threads at once, never twice at the same time for one kernel. A backend knows nothing of the
portal: it gets a ``KernelSpec`` and answers with plain values.
"""

from __future__ import annotations

import abc
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
    """How far a pull is: the share done (0–1, None: unknown), one sentence, and bytes. ``total_bytes`` counts what is
    known to come so far, and may grow."""

    share: float | None
    message: str
    done_bytes: int | None = None
    total_bytes: int | None = None


Progress = Callable[[Fetched], None]


class BackendError(PlatformError):
    """The engine could not be asked, or refused; ``code`` is the kernel's reason."""

    code = "backend-error"


# Codes of errors that say nothing about what was asked for: no verdict, but another try.
ENGINE_SILENT = ("backend-error", "engine-unreachable")


class ImageNotFound(BackendError):
    """The image is neither on the node nor in the registry that its name points to."""

    code = "image-not-found"


class StartFailed(BackendError):
    """The engine knows the image but cannot start the kernel."""

    code = "failed-to-start"


class StaleGeneration(BackendError):
    """A container of a newer generation exists: the order to start this one is out of date."""

    code = "stale-generation"


class CommitFailed(BackendError):
    """No image can be made of this kernel, or not brought to its registry."""

    code = "commit-failed"


class KernelGone(BackendError):
    """There is no such kernel on this node (any more)."""

    code = "kernel-gone"


@dataclass(frozen=True, slots=True)
class Made:
    """An image that was made of a kernel. ``digest``: of its manifest, where it was pushed."""

    size_bytes: int
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Started:
    """A kernel whose main process is alive. ``adopted``: it was already there."""

    container_id: str
    adopted: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """How a kernel's main process ended. ``reason`` is ``exited``, ``out-of-memory``, ``agent-stopped`` or empty when
    it was stopped on order; ``message`` says it in one sentence with its numbers."""

    exit_code: int | None
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """Something happened to a kernel (its main process ended): a hint to look again."""

    kernel_id: UUID


@dataclass(frozen=True, slots=True)
class Overfull:
    """A kernel that holds more than it may and must end; ``message`` says it with the numbers."""

    kernel_id: UUID
    message: str
    reason: str = "scratch-full"


class Terminal(abc.ABC):
    """A byte stream to a shell in a kernel, used from one asyncio task each way."""

    @abc.abstractmethod
    async def read(self) -> bytes:
        """Return the next output; empty when the shell has ended."""

    @abc.abstractmethod
    async def write(self, data: bytes) -> None:
        """Send input; waits while the other side is full."""

    @abc.abstractmethod
    async def resize(self, rows: int, cols: int) -> None:
        """Tell the shell its new size."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Hang up: the attached client ends, a tmux session behind it stays. May be called twice."""


class Backend(abc.ABC):
    """Kernels of one node. ``deployment`` keeps several portals on one engine apart; nothing without it is touched.
    ``services`` reaches the ports of kernels; None where nothing keeps them from others. ``guests`` runs code in
    them. ``capabilities``: what the portal is told of it, beside its abilities.

    Nine methods must be there; the others have a default.
    """

    name: str
    capabilities: frozenset[Capability] = frozenset()
    services: ServiceHost | None = None
    guests: GuestHost | None = None

    @abc.abstractmethod
    def capacity(self) -> Slots:
        """Return what the engine's machine has in all (``cpu``, ``mem``), before any reserve."""

    def engine(self) -> str:
        """Return the container engine with its version, for people; empty where there is none."""
        return ""

    def storage(self) -> list[Path]:
        """Return the folders in which images and homes lie, as far as this process can see them."""
        return []

    def notes(self) -> list[Note]:
        """Return what an administrator should know (weaker isolation, live-restore off), with the fix."""
        return []

    def fault(self) -> str:
        """Return why no kernel can start here, one sentence that ``notes`` say too; empty when kernels can."""
        return ""

    def left_out(self, kernel_id: UUID) -> str:
        """Return which automatic folders the kernel started without and why, in one or two sentences; empty: none."""
        return ""

    @abc.abstractmethod
    def start(self, spec: KernelSpec) -> Started:
        """Get or adopt: network, scratch and container of this spec exist and the main process is alive on return.

        An older generation's container is removed first. Raises StaleGeneration, ImageNotFound, StartFailed (after
        removing what it made), BackendError (the engine does not answer: nothing is known).
        """

    @abc.abstractmethod
    def stop(self, kernel_id: UUID, *, grace: float) -> None:
        """End the main process (polite signal, ``grace`` seconds, kill). Returns when it has ended or is gone."""

    @abc.abstractmethod
    def ended(self, kernel_id: UUID) -> Ended | None:
        """Return how it ended, or None while it runs. Raises KernelGone when nothing is left to look at."""

    @abc.abstractmethod
    def read_log(self, kernel_id: UUID, *, limit: int) -> tuple[bytes, bool]:
        """Return the last ``limit`` bytes of the main process's output and whether more was cut off; b"" if gone."""

    @abc.abstractmethod
    def remove(self, kernel_id: UUID) -> None:
        """Remove container, network, scratch and whatever else the kernel held. Gone already is success."""

    @abc.abstractmethod
    def kernels(self) -> list[KernelSighting]:
        """Return every kernel of this deployment and agent that the engine knows, running or ended.

        Raises BackendError when the engine cannot be asked: unknown is not empty.
        """

    def overfull(self) -> list[Overfull]:
        """Return the kernels that hold more than a limit which the file system itself does not set; never waits long.
        Raises BackendError."""
        return []

    def sweep(self, live: set[UUID]) -> None:
        """Remove networks, scratch folders and terminals of this deployment that belong to no kernel in ``live``."""
        return

    @abc.abstractmethod
    def watch(self) -> Iterator[KernelEvent]:
        """Yield an event whenever a kernel's main process ends; returns when the engine closes the stream."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of the engine. Native-process kernels end here, containers go on."""
