"""Input of the decisions about inference endpoints: immutable snapshots. No Django, no I/O, no clock but ``now``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID


class DesiredState(StrEnum):
    """The state that the owner wants an endpoint to have."""

    RUN = "run"
    STOPPED = "stopped"
    DELETED = "deleted"


class ReplicaState(StrEnum):
    """State of a replica; ``docs/architecture.md`` draws the transitions."""

    STARTING = "starting"  # the session of the replica does not run yet
    LOADING = "loading"  # the session runs, but no app proxy has got an answer yet
    READY = "ready"
    DRAINING = "draining"  # gets no new requests, and ends after the last one
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """A replica that has not ended.

    ``waits_for``: why its session is pending (empty: placed). ``is_answering``: an app proxy gets answers from it, or
    none has tried. ``is_leaving``: its agent is draining. ``ready_at``: when it became READY. ``open``: the number of
    its current requests.
    """

    id: UUID
    number: int
    revision: int
    state: ReplicaState
    waits_for: str = ""
    wait_message: str = ""
    is_answering: bool = True
    is_leaving: bool = False
    ready_at: datetime | None = None
    open: int = 0

    @property
    def serves(self) -> bool:
        """Whether the replica gets requests and answers them."""
        return self.state == ReplicaState.READY and self.is_answering

    @property
    def is_coming(self) -> bool:
        """Whether the replica is starting."""
        return self.state in (ReplicaState.STARTING, ReplicaState.LOADING)


@dataclass(frozen=True, slots=True)
class LoadView:
    """Load measured by app proxies, in concurrent requests.

    ``short``: over 6 s; ``long``: over 30 s; ``peak``: the highest ``long`` of the last 300 s. Each is the larger of
    the mean concurrency and of arrivals per second × service seconds. ``backlog``: the concurrency that would empty the
    queue in a minute. ``age``: the time since the newest measurement (None: no measurement). ``held``: requests that
    wait for the first replica. ``rate`` and ``p95`` are only displayed.
    """

    short: float = 0.0
    long: float = 0.0
    peak: float = 0.0
    backlog: float = 0.0
    queued: int = 0
    open: int = 0
    held: int = 0
    age: timedelta | None = timedelta(0)
    rate: float = 0.0
    p95: float | None = None
    is_partial: bool = False  # an app proxy stopped reporting: its requests are missing in these numbers


@dataclass(frozen=True, slots=True)
class RuleView:
    """A scaling rule. ``value``: the metric now (None: unknown). ``needs_queue``: the rule scales up only while
    requests queue."""

    name: str
    value: float | None
    up_over: float | None = None
    down_under: float | None = None
    step: int = 1
    needs_queue: bool = False


@dataclass(frozen=True, slots=True)
class RevisionView:
    """Results of a revision: failed starts since the last success, the end of the pause before the next start, and its
    numbers of requests and errors."""

    failed_starts: int = 0
    retry_at: datetime | None = None
    last_error: str = ""
    requests: int = 0
    errors: int = 0


_HEALTHY = RevisionView()


@dataclass(frozen=True, slots=True)
class EndpointView:
    """An endpoint. ``current`` and ``next``: revision numbers; ``next`` is None unless an update is running.
    ``target``: concurrent requests per replica. ``reached``: the most replicas that have answered at once, of those
    that are wanted now. ``scaled_at``: the last change of ``desired``; equals ``created_at`` while there was none."""

    id: UUID
    wish: DesiredState = DesiredState.RUN
    current: int = 1
    next: int | None = None
    minimum: int = 1
    maximum: int = 1
    target: float = 4.0
    desired: int = 0
    reached: int = 0
    panic_until: datetime | None = None
    created_at: datetime | None = None
    scaled_at: datetime | None = None
    asked_at: datetime | None = None
    asleep_after: timedelta = timedelta(minutes=15)
    max_surge: int = 1
    max_unavailable: int = 0
    replicas: tuple[ReplicaView, ...] = ()
    load: LoadView = field(default_factory=LoadView)
    rules: tuple[RuleView, ...] = ()
    revisions: Mapping[int, RevisionView] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        """The revision that all replicas should run."""
        return self.current if self.next is None else self.next

    def results_of(self, revision: int) -> RevisionView:
        """Return the results of a revision; without records, the results of a revision that never failed."""
        return self.revisions.get(revision, _HEALTHY)


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason for an action, or for no action. ``code`` is stable; ``data`` holds numbers; ``until`` is the time
    until which the reason holds, if known."""

    code: str
    message: str
    data: Mapping[str, object] = field(default_factory=dict)
    until: datetime | None = None
