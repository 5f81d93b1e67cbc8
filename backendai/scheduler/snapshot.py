"""What the scheduler sees: a frozen picture of one resource group. No Django, no I/O, no clock but ``now``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from typing import NamedTuple
from uuid import UUID

from backendai.core.session_kinds import KINDS, USUAL_KIND
from backendai.core.slots import Slots

SLOT_ORDER = ("cuda.device", "cuda.shares", "rocm.device", "cpu", "mem")
_NOTHING = Slots()


@dataclass(frozen=True, slots=True)
class DeviceView:
    """One accelerator of an agent, as one slot counts it: what it has and what kernels hold of it (thousandths)."""

    id: str
    slot: str
    capacity: int
    taken: int = 0


@dataclass(frozen=True, slots=True)
class AgentView:
    """One agent: what it has, what the ledger says is taken, and whether it may take more.

    ``images``: the references it has, of images that it cannot fetch: they can be had nowhere else, or it is short of
    disk space (``low_disk``). ``fault``: why it takes none (``schedulable``) when no administrator paused it.
    ``companions``: by launch, its kernels here. ``storage``: the features of storage hosts that kernels can use there
    (see ``StorageNeed``); ``storage_faults``: by host, why none can.
    """

    id: UUID
    name: str
    architecture: str
    capacity: Slots
    occupied: Slots
    alive: bool = True
    schedulable: bool = True
    kernels: int = 0
    max_kernels: int | None = None
    devices: tuple[DeviceView, ...] = ()
    images: frozenset[str] = frozenset()
    low_disk: bool = False
    fault: str = ""
    companions: Mapping[str, int] = field(default_factory=dict)
    storage: frozenset[str] = frozenset()
    storage_faults: Mapping[str, str] = field(default_factory=dict)

    @property
    def free(self) -> Slots:
        """What is left of it."""
        return self.capacity - self.occupied


NAME = attrgetter("name", "id")  # by what agents are sorted


@dataclass(frozen=True, slots=True)
class StorageNeed:
    """What a session needs of storage hosts to mount its folders.

    ``features``: the host's name for any mount, with ``:view`` behind it for a read-only one, with ``:part`` for one of
    a part of a folder. ``folders``: name and host of each folder, for people.
    """

    features: frozenset[str]
    folders: tuple[tuple[str, str], ...]


class KernelView(NamedTuple):
    """One kernel to place. ``node_image``: the reference of an image that its agent must have already."""

    id: UUID
    slots: Slots
    architecture: str = ""
    node_image: str = ""


@dataclass(frozen=True, slots=True)
class ImageBuild:
    """The session's image is being made: how far (0–1, None: unknown), or why it failed and what would mend it."""

    progress: float | None
    message: str
    failed: bool = False
    fix: str = ""


class DependencyState(StrEnum):
    """How far a session is that another one waits for."""

    LIVE = "live"
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # ended without success: it will never succeed


@dataclass(frozen=True, slots=True)
class Dependency:
    """Another session that must have ended well first."""

    id: UUID
    name: str
    state: DependencyState


class Holder(NamedTuple):
    """Whom a session counts against: keys into ``Snapshot.limits``, ``weights`` and ``past_usage``."""

    user: str = ""
    key_pair: str = ""
    project: str = ""
    domain: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of those that are known, the narrowest first."""
        return tuple(key for key in (self.key_pair, self.user, self.project, self.domain) if key)


_NOBODY = Holder()


class SessionView(NamedTuple):
    """One pending session.

    ``designated``: the only agents it may run on (empty: any). ``placement`` (``spread``, ``pack`` or empty) says how
    the sessions of its ``launch`` lie. ``longest_run``: it ends that long after its start at the latest.
    ``overtaken_since``: when others first passed it.
    """

    id: UUID
    name: str
    created_at: datetime
    priority: int
    kernels: tuple[KernelView, ...]
    multi_node: bool = False
    starts_at: datetime | None = None
    image: str = ""
    image_build: ImageBuild | None = None
    attempts: int = 0
    avoid_agents: frozenset[UUID] = frozenset()
    session_type: str = USUAL_KIND.name
    holder: Holder = _NOBODY
    dependencies: tuple[Dependency, ...] = ()
    designated: frozenset[UUID] = frozenset()
    placement: str = ""
    launch: str = ""
    longest_run: timedelta | None = None
    overtaken_since: datetime | None = None
    storage: StorageNeed | None = None

    @property
    def total(self) -> Slots:
        """What all its kernels ask for together."""
        kernels = self.kernels
        return kernels[0].slots if len(kernels) == 1 else sum((kernel.slots for kernel in kernels), Slots())


@dataclass(frozen=True, slots=True)
class LimitView:
    """The limits of one holder, and what its placed sessions hold now (in all groups). None: unlimited.

    ``scope``: ``key-pair``, ``user``, ``project`` or ``domain``. ``unnamed_limited``: a slot that ``slots`` does not
    name may not be had at all. ``forbidden``: slots of which the limit is nothing, which ``slots`` cannot say.
    """

    scope: str
    name: str
    slots: Slots = _NOTHING
    unnamed_limited: bool = False
    max_sessions: int | None = None
    used: Slots = _NOTHING
    sessions: int = 0
    forbidden: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RunningView:
    """One placed session of the group: what it holds where, and when it ends at the latest (None: not known)."""

    id: UUID
    seats: tuple[tuple[UUID, Slots, int], ...]  # agent, amounts, kernels
    ends_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """How one group's sessions and agents are chosen; an administrator sets them.

    ``retries_to_skip`` 0: nobody passes a session that does not fit. ``options`` are those of the chosen strategies.
    ``next_agent`` is the name at which round-robin goes on.
    """

    sequence: str = "fifo"
    selection: str = "concentrated"
    slot_order: tuple[str, ...] = SLOT_ORDER
    retries_to_skip: int = 0
    overtaking_limit: timedelta = timedelta(hours=24)
    backfill: bool = False
    session_types: frozenset[str] = frozenset(KINDS)
    fill_devices: bool = False
    allow_fragmentation: bool = True
    next_agent: str = ""
    options: Mapping[str, object] = field(default_factory=dict)


_USUAL = Rules()


class Networks(NamedTuple):
    """How many sessions over several agents there may be at once, and how many more there may be now."""

    most: int
    left: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One resource group at ``now``: its rules, its agents (all that are registered), its pending sessions.

    Keyed by the keys of ``Holder``: ``limits``; ``held``, what a user's sessions hold in this group; ``weights``
    (missing: 1); ``past_usage``, the decayed use of this group as a share of its capacity (missing: none).
    ``running`` is needed for backfill only. ``networks``: of so many that sessions over several agents may have there
    are so many left; None where nobody asks for one.
    """

    now: datetime
    group: str
    agents: tuple[AgentView, ...]
    pending: tuple[SessionView, ...]
    rules: Rules = _USUAL
    limits: Mapping[str, LimitView] = field(default_factory=dict)
    held: Mapping[str, Slots] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    past_usage: Mapping[str, float] = field(default_factory=dict)
    running: tuple[RunningView, ...] = ()
    networks: Networks | None = None
