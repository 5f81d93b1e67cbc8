"""Replays recorded sessions under another policy: the scheduler decides again, on a clock of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import mean
from uuid import UUID

from backendai.base.core.slots import Slots
from backendai.scheduler.forecasts.world import World
from backendai.scheduler.snapshot import AgentView, Holder, KernelView, Rules, SessionView, Snapshot

MOST = 200  # pending sessions that a pass looks at, the oldest
_PASS = timedelta(seconds=2)  # what comes within the time between two passes is decided together


@dataclass(frozen=True, slots=True)
class Job:
    """A recorded session: when it was submitted, how long it ran, and what each of its kernels asked for. ``number``
    fits into a UUID, and decides between jobs that were submitted at the same time."""

    number: int
    user: str
    submitted: datetime
    length: timedelta
    slots: Slots
    kernels: int = 1
    limit: timedelta | None = None
    priority: int = 10


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a policy did with the jobs. Waits are in seconds. ``used``: by slot, the share of the capacity that was held
    between the first submission and the last end. ``fairness``: Jain's index over the users' mean slowdowns, 1 if all
    are equal. ``never``: jobs that no agent could hold."""

    starts: Mapping[int, datetime]
    never: int
    p50: float
    p95: float
    longest: float
    used: Mapping[str, float]
    fairness: float
    by_user: Mapping[str, float]


def replay(
    jobs: Sequence[Job], agents: Sequence[AgentView], rules: Rules, tell: Callable[[float], None] = lambda part: None
) -> Outcome:
    """Return what the scheduler would have done with these jobs on these agents, which are empty at the beginning.

    ``tell`` is called with the part that is done, from 0 to 1, after each pass; what it raises ends the replay.
    """
    jobs = sorted(jobs, key=lambda job: (job.submitted, job.number))
    if not jobs:
        return Outcome({}, 0, 0.0, 0.0, 0.0, {}, 1.0, {})
    lengths = {UUID(int=job.number): job.length for job in jobs}
    snapshot = Snapshot(jobs[0].submitted, "replay", tuple(agents), (), rules)
    world = World(snapshot, [], lengths.get)
    _run(world, jobs, tell)
    starts = {pk.int: at for pk, at in world.starts.items()}
    return _outcome(jobs, starts, agents)


def parts_of(
    jobs: Sequence[Job], starts: Mapping[int, datetime], capacity: int, slot: str, edges: Sequence[datetime]
) -> list[tuple[float | None, float]]:
    """Return for each time between two edges, all of one length: the mean wait in seconds of the jobs submitted then
    (None: of none), and the share of this capacity of a slot that was held."""
    width, waits = edges[1] - edges[0], [list[float]() for _ in edges[1:]]
    held = [0.0] * len(waits)
    for job in jobs:
        if (start := starts.get(job.number)) is None:
            continue
        at = min(int((job.submitted - edges[0]) / width), len(waits) - 1)
        waits[at].append((start - job.submitted).total_seconds())
        first, end = int((start - edges[0]) / width), start + job.length
        for place in range(first, min(int((end - edges[0]) / width), len(held) - 1) + 1):
            part = (min(end, edges[place + 1]) - max(start, edges[place])) / width
            held[place] += job.slots[slot] * job.kernels * part
    return [(mean(each) if each else None, part / max(capacity, 1)) for each, part in zip(waits, held, strict=True)]


def _run(world: World, jobs: Sequence[Job], tell: Callable[[float], None]) -> None:
    following = 0
    waited: set[tuple[Slots, int]] = set()  # amounts that did not fit; nothing has become free since
    while following < len(jobs) or world.pending:
        moments = [at for at in (world.next_moment(), _at(jobs, following)) if at is not None]
        if not moments:
            return
        now = max(min(moments), world.now) + (_PASS if world.pending else timedelta(0))
        has_freed = world.go_on(now)
        changed = has_freed or not world.pending
        while following < len(jobs) and jobs[following].submitted <= now:
            job = jobs[following]
            world.arrive(_session(job))
            changed = changed or (job.slots, job.kernels) not in waited
            following += 1
        if changed:
            world.decide(MOST)
            tell(len(world.starts) / len(jobs))
            waited = {(each.kernels[0].slots, len(each.kernels)) for each in world.pending}


def _at(jobs: Sequence[Job], place: int) -> datetime | None:
    return jobs[place].submitted if place < len(jobs) else None


def _session(job: Job) -> SessionView:
    kernels = tuple(KernelView(UUID(int=each), job.slots) for each in range(job.kernels))
    holder = Holder(user=f"user:{job.user}")
    return SessionView(
        UUID(int=job.number), str(job.number), job.submitted, job.priority, kernels,
        multi_node=job.kernels > 1, holder=holder, longest_run=job.limit,
    )  # fmt: skip


def _outcome(jobs: Sequence[Job], starts: Mapping[int, datetime], agents: Iterable[AgentView]) -> Outcome:
    ran = [job for job in jobs if job.number in starts]
    waits = sorted((starts[job.number] - job.submitted).total_seconds() for job in ran) or [0.0]
    by_user: dict[str, list[float]] = defaultdict(list)
    slowdowns: dict[str, list[float]] = defaultdict(list)
    for job in ran:
        wait = (starts[job.number] - job.submitted).total_seconds()
        by_user[job.user].append(wait)
        slowdowns[job.user].append(1 + wait / max(job.length.total_seconds(), 60.0))
    return Outcome(
        starts,
        len(jobs) - len(ran),
        waits[len(waits) // 2],
        waits[min(int(len(waits) * 0.95), len(waits) - 1)],
        waits[-1],
        _used(ran, starts, agents),
        _jain([mean(each) for each in slowdowns.values()]),
        {user: mean(each) for user, each in by_user.items()},
    )


def _used(ran: Sequence[Job], starts: Mapping[int, datetime], agents: Iterable[AgentView]) -> dict[str, float]:
    if not ran:
        return {}
    ends = max(starts[job.number] + job.length for job in ran)
    span = max((ends - min(job.submitted for job in ran)).total_seconds(), 1.0)
    capacity: dict[str, int] = defaultdict(int)
    for agent in agents:
        for slot, amount in agent.capacity.items():
            capacity[slot] += amount
    held: dict[str, float] = defaultdict(float)
    for job in ran:
        for slot, amount in job.slots.items():
            held[slot] += amount * job.kernels * job.length.total_seconds()
    return {slot: held[slot] / (amount * span) for slot, amount in capacity.items() if amount}


def _jain(values: Sequence[float]) -> float:
    return sum(values) ** 2 / (len(values) * sum(each * each for each in values)) if values else 1.0
