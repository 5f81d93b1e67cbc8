"""What the scheduler sees: a frozen picture of one resource group. No Django, no I/O, no clock but ``now``."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from backendai.core.slots import Slots


@dataclass(frozen=True, slots=True)
class AgentView:
    """One agent: what it has, what the ledger says is taken, and whether it may take more."""

    id: UUID
    name: str
    architecture: str
    capacity: Slots
    occupied: Slots
    alive: bool = True
    schedulable: bool = True
    kernels: int = 0
    max_kernels: int | None = None

    @property
    def free(self) -> Slots:
        """What is left of it."""
        return self.capacity - self.occupied


@dataclass(frozen=True, slots=True)
class KernelView:
    """One kernel to place."""

    id: UUID
    slots: Slots
    architecture: str = ""


@dataclass(frozen=True, slots=True)
class ImageBuild:
    """The session's image is being made: how far (0–1, None: unknown), or why it failed and what would mend it."""

    progress: float | None
    message: str
    failed: bool = False
    fix: str = ""


@dataclass(frozen=True, slots=True)
class SessionView:
    """One pending session."""

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

    @property
    def total(self) -> Slots:
        """What all its kernels ask for together."""
        return sum((kernel.slots for kernel in self.kernels), Slots())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One resource group at ``now``: its rules, its agents (all that are registered), its pending sessions."""

    now: datetime
    group: str
    agents: tuple[AgentView, ...]
    pending: tuple[SessionView, ...]
    sequence: str = "fifo"
    selection: str = "concentrated"
    slot_order: tuple[str, ...] = ("cuda.device", "cuda.shares", "cpu", "mem")
    options: dict[str, object] = field(default_factory=dict)
