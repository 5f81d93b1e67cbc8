"""Messages between the portal and the agents: every field that crosses the process border, and nothing else.

The agent starts each exchange: it sends ``SyncUp``, and the portal answers with the desired state (``SyncDown``).
Between two syncs the agent fetches a ``KernelSpec`` for each kernel and sends ``KernelReport``s. Amounts of slots are
decimal strings as in ``core.slots``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal
from uuid import UUID

from pydantic import Field, field_validator

from backendai.base.core.image_names import pinned
from backendai.base.paths.home_paths import path_problem
from backendai.base.wire.cluster_network import ClusterKeys, ClusterNetwork, Peer
from backendai.base.wire.fields import (
    MOST_IMAGES,
    MOST_KERNELS,
    MOST_NOTES,
    MOST_WIDEST,
    Capabilities,
    Capacity,
    Digest,
    ExitCode,
    GatewayUrl,
    Generation,
    ImageBytes,
    Labels,
    Message,
    Name,
    Order,
    Sentence,
    Share,
    TextReport,
    Word,
)
from backendai.base.wire.homes import StoredHome
from backendai.base.wire.live import Devices, LiveSample
from backendai.base.wire.mounts import MOST_HOSTS, HostReport, MountSpec
from backendai.base.wire.node_jobs import NodeJobOrder
from backendai.base.wire.usage import UsageReport

PROTOCOL = 1
MOST_UNKNOWN = 256  # kernels whose details one sync reports; further ones follow after these are decided


class KernelState(StrEnum):
    """State of a kernel as its agent reports it. The names equal the names of kernel statuses."""

    PULLING = "PULLING"
    CREATING = "CREATING"
    RUNNING = "RUNNING"
    TERMINATED = "TERMINATED"


class HomeFile(Order):
    """A file for the home folder of a new kernel; ``path`` is relative to it."""

    path: str
    mode: int = Field(default=0o644, ge=0, le=0o777)
    content: str = Field(default="", repr=False)

    @field_validator("path")
    @classmethod
    def _stay_inside(cls, path: str) -> str:
        if problem := path_problem(path):
            raise ValueError(problem)
        return path


RunMode = Literal["interactive", "batch"]  # how a kernel ends; independent of the kind of session


def mode_of(*, runs_program: bool) -> RunMode:
    """Return ``batch`` for a kernel that ends with its command, else ``interactive``."""
    return "batch" if runs_program else "interactive"


class ReadyCheck(Order):
    """A kernel is ready when a program in it listens on port ``tcp``. Its start fails if this takes more than
    ``within`` seconds."""

    tcp: int
    within: float = 60.0


class KernelSpec(Order):
    """Everything that an agent needs to start one kernel.

    ``generation``: the fencing token; it grows with every placement, and a container of an older generation is stale.
    ``digest``: the exact image to start (empty: the image that the agent has under the name). ``files``: the user's
    dotfiles and the session's files. ``bootstrap``: a script that runs first. Files and script may contain secrets and
    are written to the home folder only. ``authorities``: certificates (PEM). Timeouts are in seconds.
    """

    deployment: str
    kernel_id: UUID
    session_id: UUID
    generation: int
    agent: str
    session_name: str
    session_type: RunMode = "interactive"
    image: str
    digest: str = ""
    architecture: str = ""
    role: str = "main"
    index: int = 1
    hostname: str = "main1"
    slots: dict[str, str]
    devices: dict[str, dict[str, str]] = Field(default_factory=dict)
    shm_bytes: int = 64 * 2**20
    scratch_bytes: int = 0
    log_bytes: int = 10 * 2**20
    pids: int = 4096
    environ: dict[str, str] = Field(default_factory=dict)
    command: str = ""
    files: list[HomeFile] = Field(default_factory=list, repr=False)
    bootstrap: str = Field(default="", repr=False)
    authorities: str = Field(default="", repr=False)
    peers: list[Peer] = Field(default_factory=list)
    cluster_size: int = 1
    network: ClusterNetwork | None = None
    keys: ClusterKeys | None = None  # set for a session with several kernels
    pull_timeout: float = 1800.0
    create_timeout: float = 120.0
    ready: ReadyCheck | None = None  # None: ready when its main process is alive
    manifest: str = Field(default="", repr=False)  # signed by the portal, so that the session can be adopted later
    mounts: list[MountSpec] = Field(default_factory=list)
    start_in: str = ""  # the working directory of programs; empty: the home
    home: StoredHome | None = None  # a stored home, from which the new home is filled

    @property
    def runs_program(self) -> bool:
        """Whether the kernel ends with its command; otherwise it runs until the portal ends it."""
        return self.session_type == "batch"

    @property
    def exact_image(self) -> str:
        """The image reference for the engine: the name, with the digest if there is one."""
        return pinned(self.image, self.digest)


class StopOrder(Order):
    """An order to stop a kernel: SIGTERM, and SIGKILL after ``grace`` seconds. With 0, SIGKILL is sent at once,
    although the end of the log may be lost."""

    kernel_id: UUID
    generation: int
    grace: float = 5.0


class KernelReport(TextReport):
    """A state change of one kernel. ``reason``: a kebab-case code. ``message``: one sentence with the numbers.
    ``has_cause``: the message says more about a program's end than its exit code. ``fetched_bytes`` of ``image_bytes``:
    how much of the image is pulled; the total may still grow."""

    kernel_id: UUID
    generation: Generation
    state: KernelState
    container_id: Name = ""
    exit_code: ExitCode = None
    reason: Name = ""
    has_cause: bool = False
    progress: Share = None
    fetched_bytes: ImageBytes = None
    image_bytes: ImageBytes = None
    timings: dict[Name, float] = Field(default_factory=dict, max_length=64)


class KernelSighting(Message):
    """A container or process of this deployment that exists on the agent. ``frozen``: its programs stand still."""

    kernel_id: UUID
    generation: Generation
    running: bool
    frozen: bool = False
    container_id: Name = ""
    exit_code: ExitCode = None


class ImageSighting(Message):
    """An image that the agent can start without pulling. ``labels``: the image's labels (see docs/images.md)."""

    reference: str = Field(max_length=255)
    digest: Digest = ""
    architecture: Word = ""
    size_bytes: int = Field(default=0, ge=0, lt=2**63)
    labels: Labels = Field(default_factory=dict)


class Note(Message):
    """A warning about an agent for administrators, with advice."""

    code: Name
    message: Sentence
    fix: Sentence = ""


class UnknownKernel(Message):
    """A kernel that the database does not know, or that the agent refuses to remove (``kept``). ``manifest``: the
    description that the portal signed when the kernel started; empty for older kernels."""

    kernel_id: UUID
    generation: Generation
    running: bool = True
    kept: bool = False
    manifest: str = Field(default="", max_length=16 * 2**10, repr=False)


class Epoch(Order):
    """The identity and age of the portal's database. ``lineage``: identifies the database. ``tick``: only grows. If an
    agent has seen a higher tick or another lineage, the portal has a restored or a different database."""

    lineage: str
    tick: int


class SyncUp(Message):
    """An agent's state. Its list of kernels was made before the message was built.

    ``low_disk``: free space is below the reserve, so the agent must not pull images. ``fault``: why the agent cannot
    start kernels (empty: it can). ``unknown``: details of kernels that the portal does not know, or that this agent
    refuses to remove. ``storage_hosts``: hosts whose folders kernels can mount; without hosts the agent gets no kernel
    with folders. ``capabilities``: see ``wire.capabilities`` (None: the agent's version does not report them).
    ``working``: kernels that are executing submitted code. ``widest``: the most that one kernel can get on each of the
    largest machines behind this agent (empty: the agent is one machine). ``slowness``: the factor by which starts take
    longer here, above 1 for emulated machines; the portal extends the time limit of starts by it.
    """

    protocol: int = Field(default=PROTOCOL, ge=0, lt=2**31)
    boot_id: Name
    version: Word
    backend: Word
    architecture: Word
    gateway_url: GatewayUrl
    capacity: Capacity
    devices: dict[Name, Devices] = Field(default_factory=dict, max_length=64)
    images: list[ImageSighting] | None = Field(default=None, max_length=MOST_IMAGES)
    images_digest: Name = ""
    kernels: list[KernelSighting] = Field(default_factory=list, max_length=MOST_KERNELS)
    notes: list[Note] = Field(default_factory=list, max_length=MOST_NOTES)
    live: LiveSample | None = None
    usage: UsageReport | None = None
    working: list[UUID] = Field(default_factory=list, max_length=MOST_KERNELS)
    engine: Name = ""
    os_kernel: Name = ""
    low_disk: bool = False
    fault: Sentence = ""
    draining: bool = False
    unknown: list[UnknownKernel] = Field(default_factory=list, max_length=MOST_UNKNOWN)
    storage_hosts: list[HostReport] = Field(default_factory=list, max_length=MOST_HOSTS)
    capabilities: Capabilities | None = None
    widest: list[Capacity] = Field(default_factory=list, max_length=MOST_WIDEST)
    slowness: int = Field(default=1, ge=1, le=100)
    wait: float = Field(default=0.0, ge=0.0, le=30.0)


class Desired(Order):
    """A kernel that should exist on the agent. ``started``: the portal has a report that it runs."""

    kernel_id: UUID
    generation: int
    started: bool


class SyncDown(Order):
    """The desired state of the agent.

    ``desired``: every live kernel of the agent. ``stop``: kernels that must end. ``unwanted``: kernels in the agent's
    list that have ended in the database; the agent removes a kernel that two consecutive answers name. ``unknown``:
    kernels in the list that the database does not know; they keep running, and the agent reports details. ``removals``:
    kernels that an administrator has decided to remove. ``jobs``: jobs without a reported result. ``takes_bundles``:
    the portal accepts several requests and reports in one call (``wire.bundles``).
    """

    deployment: str
    public_key: str
    interval: float = 5.0
    want_images: bool = False
    desired: list[Desired] = Field(default_factory=list)
    stop: list[StopOrder] = Field(default_factory=list)
    unwanted: list[KernelSighting] = Field(default_factory=list)
    unknown: list[KernelSighting] = Field(default_factory=list)
    removals: list[KernelSighting] = Field(default_factory=list)
    epoch: Epoch | None = None
    jobs: list[NodeJobOrder] = Field(default_factory=list)
    takes_bundles: bool = False


class JoinUp(Message):
    """A new agent's request to join, with a join token."""

    token: str = Field(max_length=256)
    name: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
    gateway_url: GatewayUrl


class JoinDown(Order):
    """The new agent's own token, which is sent only once."""

    agent_id: UUID
    name: str
    token: str
    deployment: str
    public_key: str
