"""Messages between the portal and the nodes: every field that crosses the process border, and nothing else.

The node speaks first (``SyncUp``), the portal answers with what it wants (``SyncDown``); between two syncs a node
fetches a ``KernelSpec`` and sends ``KernelReport``s. Amounts of slots are decimal strings as in ``core.slots``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal
from uuid import UUID

from pydantic import Field, field_validator

from backendai.core.home_paths import path_problem
from backendai.core.image_names import pinned
from backendai.wire.cluster_network import ClusterNetwork
from backendai.wire.fields import (
    MOST_IMAGES,
    MOST_KERNELS,
    MOST_NOTES,
    Capabilities,
    Capacity,
    Digest,
    GatewayUrl,
    ImageBytes,
    Labels,
    Message,
    Name,
    Order,
    Sentence,
    Share,
    Telling,
    Word,
)
from backendai.wire.live import Devices, LiveSample
from backendai.wire.mounts import MOST_HOSTS, HostReport, MountSpec
from backendai.wire.node_jobs import NodeJobOrder
from backendai.wire.usage import UsageReport

PROTOCOL = 1
MOST_UNKNOWN = 256  # kernels whose details one sync tells; the others follow when these are decided


class KernelState(StrEnum):
    """What a node says about one kernel. The names are those of the kernel statuses that they lead to."""

    PREPARING = "PREPARING"
    PULLING = "PULLING"
    CREATING = "CREATING"
    RUNNING = "RUNNING"
    TERMINATED = "TERMINATED"


class Peer(Order):
    """A kernel of the same session: its host name and, when known, its address on the session's network."""

    hostname: str
    address: str | None = None


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


RunMode = Literal["interactive", "batch"]  # how a kernel ends, whatever kinds of sessions there are


def mode_of(*, runs_program: bool) -> RunMode:
    """Return how a kernel ends: with its command, or when it is told to."""
    return "batch" if runs_program else "interactive"


class KernelSpec(Order):
    """Everything a node needs to start one kernel. ``generation`` is the fencing token: it grows with every placement;
    a container of an older one is stale. ``digest``: of the image exactly the one with this digest; empty: whatever its
    name stands for there. ``files``: what people keep for every home and what the session brings; ``bootstrap``: a
    script that runs there first. Both may hold secrets and go into the home folder alone. ``authorities``: PEM."""

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
    pull_timeout: float = 1800.0
    create_timeout: float = 120.0
    manifest: str = Field(default="", repr=False)  # signed by the portal: from it the session can be adopted again
    mounts: list[MountSpec] = Field(default_factory=list)
    start_in: str = ""  # where programs begin; empty: in the home

    @property
    def runs_program(self) -> bool:
        """Whether the kernel ends with its command; else it stays until it is told to end."""
        return self.session_type == "batch"

    @property
    def exact_image(self) -> str:
        """What the engine is asked for: the name, or the name with the digest."""
        return pinned(self.image, self.digest)


class StopOrder(Order):
    """End this kernel: ``grace`` seconds between the polite signal and the kill; 0: kill it now and tell its end,
    whatever becomes of its log."""

    kernel_id: UUID
    generation: int
    grace: float = 5.0


class KernelReport(Telling):
    """What became of one kernel: ``reason`` is a kebab-case code, ``message`` one plain sentence with the numbers.
    Of its image ``fetched_bytes`` of ``image_bytes`` have come; the latter may still grow."""

    kernel_id: UUID
    generation: int
    state: KernelState
    container_id: Name = ""
    exit_code: int | None = Field(default=None, ge=-(2**31), lt=2**31)
    reason: Name = ""
    progress: Share = None
    fetched_bytes: ImageBytes = None
    image_bytes: ImageBytes = None
    address: Name = ""  # nobody reads it: earlier nodes say it, and unknown fields are refused
    timings: dict[Name, float] = Field(default_factory=dict, max_length=64)


class KernelSighting(Message):
    """One container (or process) of ours that is really there now."""

    kernel_id: UUID
    generation: int
    running: bool
    container_id: Name = ""
    exit_code: int | None = None


class ImageSighting(Message):
    """An image that the node can start at once. ``labels`` are the image's own (see docs/images.md)."""

    reference: str = Field(max_length=255)
    digest: Digest = ""
    architecture: Word = ""
    size_bytes: int = Field(default=0, ge=0, lt=2**63)
    labels: Labels = Field(default_factory=dict)


class Note(Message):
    """Something an administrator should know about a node, and what to do about it."""

    code: Name
    message: Sentence
    fix: Sentence = ""


class UnknownKernel(Message):
    """A kernel on an agent that the database does not know, or whose removal the agent refuses (``kept``).

    ``manifest``: what the portal signed when the kernel started; empty if it started before there were manifests.
    """

    kernel_id: UUID
    generation: int = Field(ge=0, lt=2**31)
    running: bool = True
    kept: bool = False
    manifest: str = Field(default="", max_length=16 * 2**10, repr=False)


class Epoch(Order):
    """The age of the portal's database: ``lineage`` names the database, ``tick`` only grows in it.

    An agent that has heard a higher tick, or another lineage, talks to a restored or another database.
    """

    lineage: str
    tick: int


class SyncUp(Message):
    """A node's view of itself; the list of kernels was taken before this message was made. ``low_disk``: less is free
    than it keeps in reserve, so that it should pull nothing. ``fault``: why it can start no kernel; empty: it can.
    ``unknown``: details of kernels that the portal does not know, or that this node keeps against the portal's word.
    ``storage_hosts``: of which kernels can mount folders; none: an agent gets no kernel with folders.
    ``capabilities``: what it can do (``wire.capabilities``); None: it is of a version that does not say.
    ``working``: kernels in which code runs that somebody gave to run."""

    protocol: int = PROTOCOL
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
    wait: float = Field(default=0.0, ge=0.0, le=30.0)


class Desired(Order):
    """A kernel that should exist on the node now; not ``started``: the portal has not heard that it runs."""

    kernel_id: UUID
    generation: int
    started: bool


class SyncDown(Order):
    """What the portal wants of the node.

    ``desired`` holds every live kernel of the node, ``stop`` what must end, ``unwanted`` kernels from the node's list
    that the database knows to be over: the node removes one when it has been named in two answers in a row.
    ``unknown``: kernels from the list that the database does not know; they go on, and the node tells their details.
    ``removals``: kernels that an administrator decided to remove. ``jobs``: what else it should do, until it has said
    what came of it.
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


class JoinUp(Message):
    """A new node introduces itself with a join token."""

    token: str = Field(max_length=256)
    name: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
    gateway_url: GatewayUrl


class JoinDown(Order):
    """The node's own token (said once). ``broker_url`` stays empty: each node asks for an account of its own."""

    agent_id: UUID
    name: str
    token: str
    broker_url: str = ""
    deployment: str
    public_key: str
