"""Messages between the portal and the nodes: every field that crosses the process border, and nothing else.

The node speaks first (``SyncUp``), the portal answers with what it wants (``SyncDown``); between two syncs a node
fetches one ``KernelSpec`` and sends ``KernelReport``s. Amounts of slots are decimal strings as in ``core.slots``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal
from uuid import UUID

from pydantic import Field, field_validator

from backendai.core.home_paths import path_problem
from backendai.core.image_names import pinned
from backendai.wire.cluster_network import ClusterNetwork
from backendai.wire.commits import CommitOrder, CommitReport
from backendai.wire.fields import Digest, GatewayUrl, Message, Name, Order, Sentence, Share, Size, Word
from backendai.wire.live import Devices, LiveSample
from backendai.wire.pulls import PullOrder, PullReport
from backendai.wire.usage import UsageReport

PROTOCOL = 1
FLEET_WORDS = 64  # of one node in one call: words about one kernel are taken in one after the other


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


class KernelSpec(Order):
    """Everything a node needs to start one kernel. ``generation`` is the fencing token: it grows with every placement;
    a container of an older one is stale. ``digest``: of the image exactly the one with this digest; empty: whatever its
    name stands for on the node. ``files`` are what people keep for every home, and ``bootstrap`` a script that runs
    there first: both may hold secrets, so they go into the home folder and nowhere else."""

    deployment: str
    kernel_id: UUID
    session_id: UUID
    generation: int
    agent: str
    session_name: str
    session_type: Literal["interactive", "batch"] = "interactive"
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
    peers: list[Peer] = Field(default_factory=list)
    cluster_size: int = 1
    network: ClusterNetwork | None = None
    pull_timeout: float = 1800.0
    create_timeout: float = 120.0

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


class KernelReport(Message):
    """What became of one kernel: ``reason`` is a kebab-case code, ``message`` one plain sentence with the numbers.
    Of its image ``fetched_bytes`` of ``image_bytes`` have come; the latter may still grow."""

    kernel_id: UUID
    generation: int
    state: KernelState
    container_id: Name = ""
    exit_code: int | None = Field(default=None, ge=-(2**31), lt=2**31)
    reason: Name = ""
    message: Sentence = ""
    progress: Share = None
    fetched_bytes: Size = None
    image_bytes: Size = None
    address: Name = ""  # nobody reads it: earlier nodes say it, and unknown fields are refused
    timings: dict[str, float] = Field(default_factory=dict)


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
    labels: dict[str, str] = Field(default_factory=dict)


class Note(Message):
    """Something an administrator should know about a node, and what to do about it."""

    code: Name
    message: Sentence
    fix: Sentence = ""


class SyncUp(Message):
    """A node's view of itself; the list of kernels was taken before this message was made. ``low_disk``: less is free
    than it keeps in reserve, so that it should pull nothing."""

    protocol: int = PROTOCOL
    boot_id: Name
    version: Word
    backend: Word
    architecture: Word
    gateway_url: GatewayUrl
    capacity: dict[str, str]
    devices: dict[Name, Devices] = Field(default_factory=dict, max_length=64)
    images: list[ImageSighting] | None = None
    images_digest: Name = ""
    kernels: list[KernelSighting] = Field(default_factory=list)
    notes: list[Note] = Field(default_factory=list)
    live: LiveSample | None = None
    usage: UsageReport | None = None
    engine: Name = ""
    os_kernel: Name = ""
    low_disk: bool = False
    draining: bool = False
    wait: float = Field(default=0.0, ge=0.0, le=30.0)


class Desired(Order):
    """A kernel that should exist on the node now; not ``started``: the portal has not heard that it runs."""

    kernel_id: UUID
    generation: int
    started: bool


class SyncDown(Order):
    """What the portal wants of the node.

    ``desired`` holds every live kernel of the node, ``stop`` what must end, ``unwanted`` kernels from the node's list
    that no live row asks for: the node removes one when it has been named in two answers in a row. ``pulls``: images
    that it should fetch, and ``commits``: that it should make, until it has said what came of them. ``drops``: images
    made of sessions that nobody wants any more.
    """

    deployment: str
    public_key: str
    interval: float = 5.0
    want_images: bool = False
    desired: list[Desired] = Field(default_factory=list)
    stop: list[StopOrder] = Field(default_factory=list)
    unwanted: list[KernelSighting] = Field(default_factory=list)
    pulls: list[PullOrder] = Field(default_factory=list)
    commits: list[CommitOrder] = Field(default_factory=list)
    drops: list[str] = Field(default_factory=list)


class JoinUp(Message):
    """A new node introduces itself with a join token."""

    token: str
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


class BrokerUp(Message):
    """A node asks for its account at the broker: it made the password itself, and tells its SHA-256 only."""

    digest: str = Field(pattern=r"^[0-9a-f]{64}$")


class BrokerDown(Order):
    """Where the broker is (empty: work by sync alone), and the name of the node's account there. Without a name the
    broker has no accounts, and the address holds whatever password all nodes share."""

    url: str = ""
    username: str = ""


class KernelLogTail(Message):
    """The end of the output of a kernel that has ended."""

    kernel_id: UUID
    generation: int
    text: str = Field(max_length=64 * 2**10)
    truncated: bool = False


class FleetNode(Message):
    """One node of a process that speaks for many: who it is, and what it has to say now. ``up`` is left out when none
    is due. ``known``: kernels (id, generation) whose spec it has and that do not run yet. What is more than a call
    takes is said in the next one."""

    token: str = Field(max_length=128)
    up: SyncUp | None = None
    logs: list[KernelLogTail] = Field(default_factory=list, max_length=FLEET_WORDS)
    reports: list[KernelReport] = Field(default_factory=list, max_length=FLEET_WORDS)
    known: list[tuple[UUID, int]] = Field(default_factory=list, max_length=10_000)
    pulls: list[PullReport] = Field(default_factory=list, max_length=FLEET_WORDS)
    commits: list[CommitReport] = Field(default_factory=list, max_length=FLEET_WORDS)


class FleetUp(Message):
    """What many nodes say in one call, each once. Each has its own token and reaches its own kernels only."""

    protocol: int = PROTOCOL
    nodes: list[FleetNode] = Field(min_length=1, max_length=2000)

    @field_validator("nodes")
    @classmethod
    def _speak_once(cls, nodes: list[FleetNode]) -> list[FleetNode]:
        if len({node.token for node in nodes}) < len(nodes):
            raise ValueError("a node may speak once in a call")
        return nodes


class FleetAnswer(Order):
    """The answer to one node. ``status``: what a call of its own would get; only with 200 the rest counts.

    ``down`` answers a sync, ``applied`` the reports one by one (False: not wanted any more), ``start`` holds the specs
    of kernels that it should start and did not name as known, ``stop`` what must end.
    """

    status: int = 200
    code: str = ""
    detail: str = ""
    down: SyncDown | None = None
    applied: list[bool] = Field(default_factory=list)
    start: list[KernelSpec] = Field(default_factory=list)
    stop: list[StopOrder] = Field(default_factory=list)


class FleetDown(Order):
    """The answers in the order of the nodes."""

    nodes: list[FleetAnswer]
