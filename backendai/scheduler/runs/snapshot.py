"""Runs as ``decide_run`` sees them: frozen, without a clock and without a database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from fractions import Fraction
from uuid import UUID

UNPLACED_PER_STEP = 64
UNPLACED_PER_OWNER = 256


class RunStatus(StrEnum):
    """How far a run is."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class TaskState(StrEnum):
    """How far one element of a step is. RELEASED: it has a session."""

    WAITING = "WAITING"
    RELEASED = "RELEASED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"


class When(StrEnum):
    """What an edge waits for. EACH: for the element of the same index, where the others wait for the whole step."""

    SUCCESS = "success"
    FAILURE = "failure"
    ANY = "any"
    EACH = "each"


class OnFailure(StrEnum):
    """What the failure of an element does to the rest. DRAIN: nothing more is released; STOP: what runs ends, too."""

    CONTINUE = "continue"
    DRAIN = "drain"
    STOP = "stop"


OPEN = (TaskState.WAITING, TaskState.RELEASED)
FINAL = frozenset({RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED})


@dataclass(frozen=True, slots=True)
class Edge:
    """That a step waits for another."""

    on: str
    when: When


@dataclass(frozen=True, slots=True)
class RetryRule:
    """When an element is tried again: ``times`` more at most, for these reasons (none: any failure), after ``wait``
    seconds, which grow by ``factor`` to ``most``; ``more``: by what each slot grows with each try."""

    times: int = 0
    reasons: frozenset[str] = frozenset()
    wait: float = 0.0
    factor: float = 2.0
    most: float = 3600.0
    more: Mapping[str, float] = field(default_factory=dict)

    def pause(self, attempt: int) -> float:
        """Return the seconds before the try that follows this attempt."""
        return float(min(Fraction(self.wait) * Fraction(self.factor) ** min(attempt - 1, 60), Fraction(self.most)))


@dataclass(frozen=True, slots=True)
class Ready:
    """An element that waits and may be released as far as its own edges and its pause go."""

    task: UUID
    index: int


@dataclass(frozen=True, slots=True)
class Blocked:
    """An element whose own element of an earlier step did not succeed."""

    task: UUID
    index: int
    cause: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A released element whose session has ended. ``classes``: the reasons a rule may name, such as ``exit:3``."""

    task: UUID
    step: str
    attempt: int
    succeeded: bool
    cancelled: bool
    code: str
    classes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class StepView:
    """A step with the numbers of its elements by state; ``ready`` and ``blocked``: the next ones, lowest index first.

    ``unplaced``: those whose session has no agent yet. 0 for ``at_once``, ``probe``, ``give_up_after``: no limit.
    """

    name: str
    size: int
    counts: Mapping[TaskState, int]
    edges: tuple[Edge, ...] = ()
    at_once: int = 0
    probe: int = 0
    give_up_after: int = 0
    is_finally: bool = False
    unplaced: int = 0
    retry: RetryRule = RetryRule()
    ready: tuple[Ready, ...] = ()
    blocked: tuple[Blocked, ...] = ()


@dataclass(frozen=True, slots=True)
class RunView:
    """One run. ``room``: how many more sessions without an agent its owner may have."""

    status: RunStatus
    steps: tuple[StepView, ...]
    ended: tuple[Ended, ...] = ()
    at_once: int = 0
    on_failure: OnFailure = OnFailure.CONTINUE
    room: int = UNPLACED_PER_OWNER


@dataclass(frozen=True, slots=True)
class Settle:
    """That an element is over, and how."""

    task: UUID
    to: TaskState
    code: str


@dataclass(frozen=True, slots=True)
class Retry:
    """That an element waits again, until ``at``."""

    task: UUID
    at: datetime
    code: str


@dataclass(frozen=True, slots=True)
class Close:
    """That elements of a step that wait will never run: all of them, or those of ``tasks``."""

    step: str
    to: TaskState
    code: str
    cause: str
    tasks: tuple[UUID, ...] | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done about a run. ``stops``: end the sessions that it still has."""

    settle: tuple[Settle, ...] = ()
    retry: tuple[Retry, ...] = ()
    close: tuple[Close, ...] = ()
    release: tuple[UUID, ...] = ()
    stops: bool = False
    end: RunStatus | None = None

    @property
    def is_empty(self) -> bool:
        """Nothing is to be done."""
        return self == Decision()
