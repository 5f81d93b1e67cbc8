"""Input and output of ``decide_run``: immutable, without a clock and without a database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from fractions import Fraction
from uuid import UUID

UNPLACED_PER_STEP = 64
UNPLACED_PER_OWNER = 256
NO_FAULT_OF_PROGRAMS = frozenset({"agent-lost", "failed-to-start"})


class RunStatus(StrEnum):
    """Status of a run."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class TaskState(StrEnum):
    """State of one element of a step. WAITING: it has no session yet. RELEASED: it has a session. SKIPPED: a condition
    of its step was not met."""

    WAITING = "WAITING"
    RELEASED = "RELEASED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"


class When(StrEnum):
    """The condition of an edge. EACH waits for the element with the same index; the others wait for the whole step."""

    SUCCESS = "success"
    FAILURE = "failure"
    ANY = "any"
    EACH = "each"


class OnFailure(StrEnum):
    """The effect of an element's failure on the rest of the run. CONTINUE: nothing. DRAIN: no further element is
    released, except of finally steps. STOP: live sessions end, too."""

    CONTINUE = "continue"
    DRAIN = "drain"
    STOP = "stop"


OPEN = (TaskState.WAITING, TaskState.RELEASED)
FINAL = frozenset({RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED})


@dataclass(frozen=True, slots=True)
class Edge:
    """A step's condition on the earlier step ``on``."""

    on: str
    when: When


@dataclass(frozen=True, slots=True)
class RetryRule:
    """The rule by which failed elements are tried again.

    ``times``: the most retries. ``reasons``: the failures that allow a retry (empty: all). ``wait``: the first pause in
    seconds, multiplied by ``factor`` with each try, up to ``most`` seconds. ``more``: by slot, the factor by which the
    request grows after a failure of the program.
    """

    times: int = 0
    reasons: frozenset[str] = frozenset()
    wait: float = 0.0
    factor: float = 2.0
    most: float = 3600.0
    more: Mapping[str, float] = field(default_factory=dict)

    def grows_after(self, classes: frozenset[str]) -> bool:
        """Return whether the next attempt requests more resources. False after failures of the platform."""
        return bool(self.more) and not classes & NO_FAULT_OF_PROGRAMS

    def pause(self, attempt: int) -> float:
        """Return the seconds of pause after this attempt."""
        return float(min(Fraction(self.wait) * Fraction(self.factor) ** min(attempt - 1, 60), Fraction(self.most)))


@dataclass(frozen=True, slots=True)
class Ready:
    """A waiting element that can be released: its edges are fulfilled and its pause is over."""

    task: UUID
    index: int


@dataclass(frozen=True, slots=True)
class Blocked:
    """A waiting element that can never run. The element with the same index in the earlier step ``cause`` did not
    succeed."""

    task: UUID
    index: int
    cause: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A released element whose session has ended. ``classes``: the reasons of the end that a retry rule can name, such
    as ``exit:3``."""

    task: UUID
    step: str
    attempt: int
    succeeded: bool
    cancelled: bool
    code: str
    classes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class StepView:
    """A step, with the number of its elements in each state.

    ``at_once``: the most elements with a session at a time. ``probe``: this many elements run first; unless all
    succeed, the others are cancelled. ``give_up_after``: after this many failures the waiting elements are cancelled. 0
    each: no limit. ``is_finally``: starts after all other steps. ``unplaced``: the number of sessions without an agent.
    ``ready`` and ``blocked``: the first of these elements by index. ``excused``: by state, how many failed and
    cancelled elements are ignored, because somebody has retried other elements since.
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
    excused: Mapping[TaskState, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunView:
    """One run. ``at_once``: the most concurrent sessions (0: no limit). ``room``: the number of further sessions
    without an agent that the owner may have."""

    status: RunStatus
    steps: tuple[StepView, ...]
    ended: tuple[Ended, ...] = ()
    at_once: int = 0
    on_failure: OnFailure = OnFailure.CONTINUE
    room: int = UNPLACED_PER_OWNER


@dataclass(frozen=True, slots=True)
class Settle:
    """Decision to give an element of a step its final state ``to``, as its session has ended. ``code``: the reason of
    the end."""

    task: UUID
    to: TaskState
    code: str


@dataclass(frozen=True, slots=True)
class Retry:
    """Decision to try a failed element again, not before ``at``. ``code``: the reason of the failure. ``grows``: the
    next try requests more."""

    task: UUID
    at: datetime
    code: str
    grows: bool = False


@dataclass(frozen=True, slots=True)
class Close:
    """Decision to skip or cancel waiting elements of a step, which then never run. ``to``: SKIPPED or CANCELLED.
    ``tasks``: their ids (None: all waiting elements). ``cause``: the step that is the reason; empty for a failure of
    the run."""

    step: str
    to: TaskState
    code: str
    cause: str
    tasks: tuple[UUID, ...] | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The changes to make to a run. ``release``: ids of the elements that get a session. ``stops``: whether its live
    sessions end. ``end``: the run's final status (None: it continues)."""

    settle: tuple[Settle, ...] = ()
    retry: tuple[Retry, ...] = ()
    close: tuple[Close, ...] = ()
    release: tuple[UUID, ...] = ()
    stops: bool = False
    end: RunStatus | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return self == Decision()
