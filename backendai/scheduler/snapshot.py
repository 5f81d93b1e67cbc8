"""The scheduler's input: an immutable snapshot of one resource group. No Django, no I/O; the only clock is ``now``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from typing import NamedTuple
from uuid import UUID

from backendai.base.core.session_kinds import KINDS, USUAL_KIND
from backendai.base.core.slots import Slots

SLOT_ORDER = ("cuda.device", "cuda.shares", "rocm.device", "cpu", "mem")
_NOTHING = Slots()


@dataclass(frozen=True, slots=True)
class DeviceView:
    """One accelerator of an agent under one slot: its capacity, and the amount that kernels hold (thousandths)."""

    id: str
    slot: str
    capacity: int
    taken: int = 0


@dataclass(frozen=True, slots=True)
class AgentView:
    """One agent: its capacity, its allocations, and whether it takes sessions.

    ``images``: references of images that the agent has and could not pull, because no registry has them or its disk is
    full (``low_disk``). ``fault``: why it is not ``schedulable``; empty if it is, or if an administrator paused it.
    ``companions``: the number of its kernels by launch. ``storage``: features of storage hosts for its kernels (see
    ``StorageNeed``). ``storage_faults``: by storage host, why the agent lacks it. ``joins``: the agent can join the
    network of a session whose kernels are on several agents. ``is_native``: its kernels are processes, not containers.
    ``draining``: an administrator empties it, by ``drain_ends_at``; it is alive and not ``schedulable``. ``unhealthy``:
    which of its accelerators it does not offer, and why; empty if it offers all.
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
    is_native: bool = False
    draining: bool = False
    drain_ends_at: datetime | None = None
    unhealthy: str = ""

    @property
    def free(self) -> Slots:
        """The agent's free amounts: capacity minus allocations."""
        return self.capacity - self.occupied


NAME = attrgetter("name", "id")  # the sort key of agents


@dataclass(frozen=True, slots=True)
class StorageNeed:
    """The storage hosts that a session's folders need.

    ``features``: one text for each need: the host's name for any mount, the name with ``:view`` for a read-only mount,
    with ``:part`` for a part of a folder. ``folders``: name and host of each folder, for messages.
    """

    features: frozenset[str]
    folders: tuple[tuple[str, str], ...]


class KernelView(NamedTuple):
    """One kernel to place. ``node_image``: an image that its agent must already have."""

    id: UUID
    slots: Slots
    architecture: str = ""
    node_image: str = ""


@dataclass(frozen=True, slots=True)
class ImageBuild:
    """The state of a running or failed build of the session's image: the progress (0–1, None: unknown), or the error
    and how to fix it."""

    progress: float | None
    message: str
    failed: bool = False
    fix: str = ""


class DependencyState(StrEnum):
    """State of a session on which another one depends: live, ended as required, or ended otherwise."""

    LIVE = "live"
    SUCCEEDED = "succeeded"  # ended as required
    FAILED = "failed"  # ended otherwise; this is final


@dataclass(frozen=True, slots=True)
class Dependency:
    """A session that must end with the required result before another session can start."""

    id: UUID
    name: str
    state: DependencyState
    needed: str = "success"  # or ``failure``, ``any``


class Holder(NamedTuple):
    """The holders to which a session counts: keys into ``Snapshot.limits``, ``weights`` and ``past_usage``."""

    user: str = ""
    key_pair: str = ""
    project: str = ""
    domain: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the holders that this session has, the narrowest holder first."""
        return tuple(key for key in (self.key_pair, self.user, self.project, self.domain) if key)


_NOBODY = Holder()


class SessionView(NamedTuple):
    """One pending session.

    ``designated``: the only agents that may run it (empty: any). ``placement``: how the sessions of its ``launch`` are
    distributed (``spread``, ``pack`` or empty). ``longest_run``: its maximum run time. ``overtaken_since``: when
    another session first passed it.
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
        """The requested amounts, summed over all kernels."""
        kernels = self.kernels
        return kernels[0].slots if len(kernels) == 1 else sum((kernel.slots for kernel in kernels), Slots())


@dataclass(frozen=True, slots=True)
class LimitView:
    """The limits of one holder, and the amounts that its placed sessions hold in all groups. None: unlimited.

    ``scope``: ``key-pair``, ``user``, ``project`` or ``domain``. ``unnamed_limited``: slots that ``slots`` does not
    name are forbidden. ``forbidden``: slots with the limit 0, which ``slots`` cannot contain.
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
    """One placed session of the group: its allocations by agent, and the latest time at which it ends (None:
    unknown)."""

    id: UUID
    allocations: tuple[tuple[UUID, Slots, int], ...]  # agent, amounts, kernels
    ends_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """Scheduling rules of one group, as set by administrators. ``retries_to_skip``: after more tries than this others
    may pass a session (0: never). ``next_agent``: the agent at which
    round-robin continues."""

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


_USUAL = Rules()


class Networks(NamedTuple):
    """The number of networks across agents that can exist (``most``), and the number of free ones."""

    most: int
    left: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One resource group at the time ``now``: its rules, all registered agents, and its pending sessions.

    Four maps have keys of ``Holder``: ``limits``; ``held`` (amounts that a user's sessions hold in this group);
    ``weights`` (default 1); ``past_usage`` (decayed usage as a share of the group's capacity, default 0). ``running``:
    filled with backfill only. ``networks``: None if no session needs a network across agents.
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
