"""The contract of a backend: it starts, watches and ends an agent's kernels; ``abilities`` has the optional parts.

Every method may be repeated: starting a running kernel succeeds, and so does ending one that is gone. Methods block;
several threads call them at once, but never two for the same kernel. A backend knows nothing of the portal: it gets a
``KernelSpec`` and returns plain values.
"""

from __future__ import annotations

import abc
import platform
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from backendai.agent.backends.guest_host import GuestHost
from backendai.agent.backends.service_host import ServiceHost
from backendai.base.core.errors import PlatformError
from backendai.base.core.messages import Message
from backendai.base.core.slots import Slots, format_size
from backendai.base.process import slowness
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.images import RegistryAccess
from backendai.base.wire.live import DeviceUse, LiveSample
from backendai.base.wire.messages import KernelSighting, KernelSpec, Note

NOBODY = RegistryAccess()
SH = "/bin/sh"  # of the kernel, the only program that an image must have
# A prefix of our own scripts: images and owners choose PATH, which may lead nowhere, or to another `tail`.
TOOLS = "PATH=/usr/bin:/bin:$PATH"
SHELL_MISSING = Message("The image has no /bin/sh, with which every kernel begins: its program was never started.")
KILLED = 137  # the exit code after SIGKILL, for lack of memory or other reasons
_BY_SIGNAL = 128
_SLOW = 1.5  # from this factor on, slowness may be why something has not started in time


@dataclass(frozen=True, slots=True)
class Fetched:
    """Progress of a pull: the share from 0 to 1 (None: unknown), one sentence, and bytes. ``total_bytes`` may still
    grow during the pull."""

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
    """A container of a newer generation exists, so the order to start this kernel is outdated."""

    code = "stale-generation"

    @classmethod
    def of(cls, known: int, ordered: int) -> StaleGeneration:
        """Return the error for an order whose generation is older than the known one."""
        return cls("Generation {known} is here; {ordered} is out of date.", known=known, ordered=ordered)


class CommitFailed(BackendError):
    """The kernel cannot be saved as an image, or the image cannot be pushed."""

    code = "commit-failed"


class KernelGone(BackendError):
    """The agent has no such kernel, or no longer has it."""

    code = "kernel-gone"


@dataclass(frozen=True, slots=True)
class SavedImage:
    """An image saved from a kernel. ``digest``: the digest of its manifest, if the image was pushed."""

    size_bytes: int
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Started:
    """A kernel whose main process is alive. ``adopted``: the kernel was running already."""

    container_id: str
    adopted: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a kernel's main process. ``reason``: ``exited``, ``out-of-memory``, ``agent-stopped``, or empty after
    an ordered stop; ``message``: one sentence with the numbers. ``has_cause``: it says more than the exit code."""

    exit_code: int | None
    reason: str
    message: str
    has_cause: bool = False


def ended_by_itself(code: int) -> Ended:
    """Return the end of a main process that nobody ordered to end."""
    return Ended(code, "exited", Message("The main process {exit_code}.", exit_code=fate(code)))


def ended_short_of_memory(code: int, limit: int) -> Ended:
    """Return the end of a kernel in which the system killed a process at its memory limit; a success stays one.

    The main process may go on without the killed one, or end later with a code of its own.
    """
    size = format_size(limit) if limit else "–"
    if code == KILLED:
        return Ended(code, "out-of-memory", Message("The kernel ran out of memory: its limit is {limit}.", limit=size))
    text = "The main process {exit_code}. The kernel had reached its memory limit ({limit}), and a process was killed."
    told = Message(text, exit_code=fate(code), limit=size)
    return Ended(code, "out-of-memory" if code else "exited", told, has_cause=True)


def fate(code: int) -> Message:
    """Return how a process with this exit code ended, as the end of a sentence."""
    try:
        name = signal.Signals(code - _BY_SIGNAL).name
    except ValueError:
        return Message("ended with exit code {exit_code}", exit_code=code)
    return Message("was ended by {name} (exit code {exit_code})", name=name, exit_code=code)


@dataclass(frozen=True, slots=True)
class KernelReading:
    """A measurement of a running kernel: counters since its start, and current levels.

    ``run`` identifies the measured container or process; only counters of the same run can be subtracted.

    ``cpu_seconds``, ``net_`` and ``io_`` bytes are counters, and so is ``memory_kills``: programs that ended at the
    memory limit. ``mem_bytes`` is a level. None: not measurable.
    ``devices``: the use of accelerators by id, where the backend itself measures it.
    """

    run: str
    cpu_seconds: float | None = None
    mem_bytes: int | None = None
    net_rx: int | None = None
    net_tx: int | None = None
    io_read: int | None = None
    io_write: int | None = None
    memory_kills: int | None = None
    devices: Mapping[str, DeviceUse] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """A sign that the main process of a kernel has ended. The agent then asks for the kernel's state."""

    kernel_id: UUID


@dataclass(frozen=True, slots=True)
class LimitExceeded:
    """A kernel that exceeds a limit and must end; ``message`` has the numbers."""

    kernel_id: UUID
    message: str
    reason: str = "scratch-full"


def with_cause(message: str) -> Message:
    """Return the message that something is late, followed by a sentence about this machine if it is slow now."""
    found = slowness.measure()
    if slowness.slowness(found) < _SLOW:
        return Message.of(message)
    if found.load < found.cores * _SLOW:
        return Message.joined([message, Message("This machine is slow or busy now, which may be the cause.")])
    busy = Message(
        "This machine is busy now (load {load} on {cores} cores), which may be the cause.",
        load=f"{found.load:.0f}",
        cores=found.cores,
    )
    return Message.joined([message, busy])


class Terminal(abc.ABC):
    """A byte stream to a shell in a kernel. One asyncio task reads, and another one writes."""

    @abc.abstractmethod
    async def read(self) -> bytes:
        """Return the next output; empty when the shell has ended."""

    @abc.abstractmethod
    async def write(self, data: bytes) -> None:
        """Send input; blocks while the buffer is full."""

    @abc.abstractmethod
    async def resize(self, rows: int, cols: int) -> None:
        """Set the size of the shell's terminal."""

    async def find(self, does: str, text: str) -> None:
        """Search the shell's history, which tmux keeps. ``does``: ``find``, ``previous``, ``next`` or ``end``. Without
        tmux nothing happens."""
        del does, text

    @abc.abstractmethod
    async def close(self) -> None:
        """Disconnect from the shell. A tmux session continues. May be called twice."""


class Backend(abc.ABC):
    """Runs the kernels of one agent. Nine methods are required; the others have a default.

    ``deployment`` separates portals that share an engine: containers of other deployments are never touched.
    ``services``: reaches ports of kernels (None: other users could reach them, too). ``guests``: executes code in
    kernels. ``capabilities``: reported to the portal in addition to the abilities. ``lacks``: abilities of the class
    that this instance does not have. ``starts_at_once``: the most concurrent starts (None: as many as the machine's
    cores allow). ``is_here``: kernels run on this machine, so that its load is the load of kernels.
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
        """Return the architecture of the machines that run kernels, as Linux names it."""
        return platform.machine()

    def widest(self) -> list[Slots]:
        """Return the most that one kernel can get on each of the largest machines behind this agent. Empty: one kernel
        can get the whole capacity."""
        return []

    def slowness(self) -> int:
        """Return the factor by which starts take longer than on other agents; does not block."""
        return 1

    def engine(self) -> str:
        """Return the container engine's name and version for display; empty if there is none."""
        return ""

    def storage(self) -> list[Path]:
        """Return the directories of images and homes that this process can see."""
        return []

    def sample(self) -> LiveSample:
        """Return the load of the machines that run kernels elsewhere; empty if it is unknown."""
        return LiveSample()

    def notes(self) -> list[Note]:
        """Return warnings for administrators (weaker isolation, live-restore off), with advice."""
        return []

    def fault(self) -> str:
        """Return why no kernel can start on this agent, as one sentence; empty if kernels can start. ``notes`` contains
        the same sentence."""
        return ""

    def left_out(self, kernel_id: UUID) -> str:
        """Return which automatic folders the kernel lacks and why, in one or two sentences; empty if the kernel has all
        of them."""
        return ""

    @abc.abstractmethod
    def start(self, spec: KernelSpec) -> Started:
        """Start or adopt a kernel. On return its network, scratch folder and container exist, and the main process is
        alive. A container of an older generation is removed first.

        Raises StaleGeneration; ImageNotFound; StartFailed after cleaning up; BackendError if the engine does not answer
        and the state is unknown.
        """

    @abc.abstractmethod
    def stop(self, kernel_id: UUID, *, grace: float) -> None:
        """End the main process: SIGTERM, and SIGKILL after ``grace`` seconds. Returns when the process has ended or
        does not exist."""

    @abc.abstractmethod
    def ended(self, kernel_id: UUID) -> Ended | None:
        """Return how the main process ended, or None while it runs. Raises KernelGone if the kernel does not exist."""

    @abc.abstractmethod
    def read_log(self, kernel_id: UUID, *, limit: int) -> tuple[bytes, bool]:
        """Return the last ``limit`` bytes of output, and whether earlier output was cut off. Returns b"" if the kernel
        does not exist."""

    @abc.abstractmethod
    def remove(self, kernel_id: UUID) -> None:
        """Remove the kernel with its container, network and scratch folder. Succeeds if the kernel does not exist."""

    @abc.abstractmethod
    def kernels(self) -> list[KernelSighting]:
        """Return every kernel of this deployment and agent, running or ended. Raises BackendError if the engine does
        not answer, as an empty list would mean that no kernel exists."""

    def overfull(self) -> list[LimitExceeded]:
        """Return the kernels that exceed a disk limit which the file system does not enforce.

        Never blocks for long. Raises BackendError.
        """
        return []

    def sweep(self, live: set[UUID]) -> None:
        """Remove networks, scratch folders and terminals of this deployment whose kernel is not in ``live``."""
        return

    @abc.abstractmethod
    def watch(self) -> Iterator[KernelEvent]:
        """Yield an event whenever a main process ends; returns when the engine closes the stream."""

    @abc.abstractmethod
    def close(self) -> None:
        """Disconnect from the engine. Native kernels end; containers continue."""
