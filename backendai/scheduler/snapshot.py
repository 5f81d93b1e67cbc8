"""The scheduler's input: an immutable snapshot of one resource group. No Django, no I/O, no clock but ``now``."""

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
    """One accelerator of an agent under one slot: its capacity, and what kernels hold of it (thousandths)."""

    id: str
    slot: str
    capacity: int
    taken: int = 0


@dataclass(frozen=True, slots=True)
class AgentView:
    """One agent: its capacity, its allocations, and whether it takes sessions.

    ``images``: references of the unpullable images that it has, because no registry has them or its disk is full
    (``low_disk``). ``fault``: why it is not ``schedulable`` if no administrator paused it. ``companions``: its kernels
    by launch. ``storage``: features of storage hosts for its kernels (see ``StorageNeed``); ``storage_faults``: by
    host, why it has none. ``joins``: it joins networks of sessions whose kernels lie on several agents.
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
    joins: bool = True

    @property
    def free(self) -> Slots:
        """The capacity less what is allocated."""
        return self.capacity - self.occupied


NAME = attrgetter("name", "id")  # the sort key of agents


@dataclass(frozen=True, slots=True)
class StorageNeed:
    """The storage hosts that a session's folders need. ``features``: the host's name for any mount, with ``:view``
    appended for a read-only mount, ``:part`` for a part of a folder. ``folders``: name and host of each folder, for
    texts."""

    features: frozenset[str]
    folders: tuple[tuple[str, str], ...]


class KernelView(NamedTuple):
    """One kernel to place. ``node_image``: an image that its agent must have already."""

    id: UUID
    slots: Slots
    architecture: str = ""
    node_image: str = ""


@dataclass(frozen=True, slots=True)
class ImageBuild:
    """The session's image is being built: the progress (0–1, None: unknown), or why it failed and the remedy."""

    progress: float | None
    message: str
    failed: bool = False
    fix: str = ""


class DependencyState(StrEnum):
    """State of a session that another one depends on, as that one needs it."""

    LIVE = "live"
    SUCCEEDED = "succeeded"  # it ended as needed
    FAILED = "failed"  # it ended otherwise, for ever


@dataclass(frozen=True, slots=True)
class Dependency:
    """Another session that must end first, as the one that waits needs it."""

    id: UUID
    name: str
    state: DependencyState
    needed: str = "success"  # or failure, any


class Holder(NamedTuple):
    """The holders that a session counts against: keys into ``Snapshot.limits``, ``weights`` and ``past_usage``."""

    user: str = ""
    key_pair: str = ""
    project: str = ""
    domain: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the known holders, the narrowest first."""
        return tuple(key for key in (self.key_pair, self.user, self.project, self.domain) if key)


_NOBODY = Holder()


class SessionView(NamedTuple):
    """One pending session. ``designated``: the only agents it may run on (empty: any). ``placement`` (``spread``,
    ``pack`` or empty): how sessions of its ``launch`` are distributed. ``longest_run``: its maximum run time.
    ``overtaken_since``: when others first passed it."""

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
        """The sum over all its kernels."""
        kernels = self.kernels
        return kernels[0].slots if len(kernels) == 1 else sum((kernel.slots for kernel in kernels), Slots())


@dataclass(frozen=True, slots=True)
class LimitView:
    """Limits of one holder, and what its placed sessions hold in all groups. None: unlimited. ``scope``: ``key-pair``,
    ``user``, ``project`` or ``domain``. ``unnamed_limited``: slots that ``slots`` does not name are not allowed.
    ``forbidden``: slots with the limit 0, which ``slots`` cannot express."""

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
    """One placed session of the group: its allocations by agent, and its latest end (None: unknown)."""

    id: UUID
    seats: tuple[tuple[UUID, Slots, int], ...]  # agent, amounts, kernels
    ends_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """Scheduling rules of one group, set by administrators. ``retries_to_skip`` 0: a session that does not fit is never
    passed. ``options``: of the chosen strategies. ``next_agent``: where round-robin continues."""

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
    """How many networks across agents there may be, and how many are left."""

    most: int
    left: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One resource group at ``now``: its rules, all registered agents, its pending sessions.

    By keys of ``Holder``: ``limits``; ``held``: what a user's sessions hold in this group; ``weights`` (default 1);
    ``past_usage``: decayed use as a share of the group's capacity (default 0). ``running`` is needed for backfill only.
    ``networks``: None if no session needs one.
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
