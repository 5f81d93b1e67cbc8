"""Checks the platform's invariants. Each check returns its violations, one sentence each.

``manage.py audit`` runs the checks on a live installation; tests run them after every step. ``engine``: the containers
of this deployment as (kernel id, generation, running), or None if the engine is unreachable.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db.models import Count, Exists, F, Max, OuterRef

from backendai.base.core.slots import Slots, format_amount
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.time_limits import longest_start
from backendai.domain.compute.folder_checks import FOLDER_CHECKS
from backendai.domain.compute.models import (
    Allocation,
    ComputeSession,
    IdleWarning,
    Kernel,
    SchedulingRecord,
    SessionMount,
)
from backendai.domain.compute.services.life.stopped_retention import ends_due
from backendai.domain.compute.services.status.ledger import occupied_by_agent
from backendai.domain.compute.status import LIVE, PLACED, SESSION_MOVES, TERMINAL, UNPLACED, Status
from backendai.domain.storage.status import FolderStatus
from backendai.scheduler.idle_kinds import IDLE_KINDS


@dataclass(frozen=True, slots=True)
class ObservedContainer:
    """A container of this deployment."""

    kernel_id: UUID
    generation: int
    running: bool


@dataclass(frozen=True, slots=True)
class World:
    """Input of the checks besides the database: the time, and the engine's containers (None: unreachable).

    ``agents``: ids of the agents whose kernels are containers of this engine; None: of all agents.
    """

    now: datetime
    engine: Sequence[ObservedContainer] | None = None
    agents: Collection[UUID] | None = None


Violations = list[str]  # one sentence each
Check = Callable[[World], Violations]
_OVERDUE_SLACK = timedelta(minutes=2)


def session_has_owner_and_kernels(world: World) -> Violations:
    """I-01: every accepted session has an owner and all its kernels."""
    rows = ComputeSession.objects.annotate(number=Count("kernels")).values_list("pk", "cluster_size", "number")
    return [f"session {pk} has {number} of {size} kernels" for pk, size, number in rows if number != size]


def history_follows_the_table(world: World) -> Violations:
    """I-02: every change of status is allowed, and each history row begins where the previous one ended."""
    violations = []
    last: dict[UUID, str] = {}
    rows = SchedulingRecord.objects.order_by("session_id", "id").values_list("session_id", "from_status", "to_status")
    for session_id, source, target in rows.iterator():
        if session_id in last and source != last[session_id]:
            violations.append(f"session {session_id}: history jumps from {last[session_id]} to {source}")
        if source and source != target and target not in SESSION_MOVES[Status(source)]:
            violations.append(f"session {session_id}: {source} → {target} is not allowed")
        last[session_id] = target
    current = dict(ComputeSession.objects.filter(pk__in=last).values_list("pk", "status"))
    violations += [
        f"session {pk} is {status} but its history ends with {last[pk]}"
        for pk, status in current.items()
        if status != last[pk]
    ]
    return violations


def terminal_rows_are_complete(world: World) -> Violations:
    """I-03: every ended session has an end time and no live kernel."""
    open_ends = ComputeSession.objects.filter(status__in=TERMINAL, ended_at=None).values_list("pk", flat=True)
    alive = Kernel.objects.filter(session__status__in=TERMINAL, status__in=LIVE).values_list("pk", "session_id")
    return [f"session {pk} has ended without a time" for pk in open_ends] + [
        f"kernel {kernel} is live though session {session} has ended" for kernel, session in alive
    ]


def one_container_per_kernel(world: World) -> Violations:
    """I-04: no kernel has more than one running container."""
    running = Counter(sighted.kernel_id for sighted in world.engine or () if sighted.running)
    return [f"kernel {kernel} runs {number} times" for kernel, number in running.items() if number > 1]


def one_kernel_per_rank(world: World) -> Violations:
    """I-05: no rank of a session has more than one live kernel."""
    rows = Kernel.objects.live().values_list("session_id", "rank").annotate(number=Count("pk")).order_by()
    return [f"session {session} has {number} kernels of rank {rank}" for session, rank, number in rows if number > 1]


def no_container_from_the_future(world: World) -> Violations:
    """I-06: no container has a generation that the database has not issued."""
    known = dict(Kernel.objects.filter(pk__in=_sighted(world)).values_list("pk", "generation"))
    return [
        f"kernel {sighted.kernel_id} runs generation {sighted.generation}, known is {known[sighted.kernel_id]}"
        for sighted in world.engine or ()
        if sighted.kernel_id in known and sighted.generation > known[sighted.kernel_id]
    ]


def ledger_matches_live_kernels(world: World) -> Violations:
    """I-07: a kernel holds allocations exactly as long as it is placed and live."""
    violations = []
    held: dict[UUID, dict[str, int]] = defaultdict(dict)
    agents: dict[UUID, set[UUID]] = defaultdict(set)
    for kernel_id, agent_id, slot, amount in Allocation.objects.values_list("kernel_id", "agent_id", "slot", "amount"):
        held[kernel_id][slot] = amount
        agents[kernel_id].add(agent_id)
    for kernel in Kernel.objects.filter(status__in=PLACED):
        if Slots(held.pop(kernel.pk, {})) != kernel.amounts:
            violations.append(f"kernel {kernel.pk} ({kernel.status}) does not hold what it asked for")
        elif agents[kernel.pk] != {kernel.agent_id}:
            violations.append(f"kernel {kernel.pk} holds slots of another agent than its own")
    return violations + [f"kernel {kernel_id} holds slots though it is not placed" for kernel_id in held]


def no_agent_is_overfull(world: World) -> Violations:
    """I-08: allocations on each agent are between 0 and its capacity."""
    violations = []
    agents = Agent.objects.in_bulk()
    for agent_id, occupied in occupied_by_agent().items():
        capacity = agents[agent_id].slots
        violations += [
            f"agent {agents[agent_id].name}: {slot} {format_amount(slot, amount)} taken of "
            f"{format_amount(slot, capacity[slot])}"
            for slot, amount in occupied.items()
            if not 0 <= amount <= capacity[slot]
        ]
    return violations


def nobody_is_collected_by_surprise(world: World) -> Violations:
    """I-15: every session that an idle checker ended had a warning for the required time."""
    warned = IdleWarning.objects.filter(
        session=OuterRef("pk"),
        collected_at__isnull=False,
        warned_at__lte=F("collected_at") - F("lead"),
        due_at__lte=F("collected_at"),
    )
    codes = [kind.reason for kind in IDLE_KINDS.values()]
    ended = ComputeSession.objects.filter(status_reason__in=codes).exclude(Exists(warned))
    rows = ended.order_by("pk").values_list("pk", "status_reason")
    return [f"session {pk} was ended ({reason}) without a warning in time" for pk, reason in rows]


def mounts_follow_their_session(world: World) -> Violations:
    """I-16: a session mounts its folders exactly as long as it lives, and none of them is being deleted."""
    held = SessionMount.objects.filter(released_at=None)
    late = held.filter(session__status__in=TERMINAL).values_list("session_id", "folder_name")
    early = SessionMount.objects.exclude(released_at=None).filter(cut_at=None, session__status__in=LIVE)
    lost = held.filter(folder__isnull=False).exclude(folder__status=FolderStatus.READY)
    return (
        [f"session {pk} has ended but still holds folder {name}" for pk, name in late]
        + [f"session {row.session_id} lives but has released folder {row.folder_name}" for row in early]
        + [f"session {row.session_id} mounts folder {row.folder_name}, which is not ready" for row in lost]
    )


def nothing_is_overdue(world: World) -> Violations:
    """L-01: no session is in transition beyond its deadline (except for unconfirmed kernels)."""
    violations = []
    moving = ComputeSession.objects.filter(status__in=LIVE - UNPLACED - {Status.RUNNING})
    confirmed = moving.exclude(kernels__is_unconfirmed=True).select_related("resource_group")
    for session in confirmed.annotate(slowness=Max("kernels__agent__slowness")):
        group = session.resource_group
        deadlines = {
            Status.PULLING: group.pull_timeout,
            Status.STOPPING: timedelta(seconds=settings.HOME_STORE_TIMEOUT + settings.STOP_GRACE)
            + group.terminate_timeout,
            Status.TERMINATING: group.terminate_timeout,
        }
        deadline = deadlines.get(Status(session.status), longest_start(group, session.slowness))
        if world.now - session.changed_at > deadline + _OVERDUE_SLACK:
            violations.append(f"session {session.pk} is {session.status} since {session.changed_at.isoformat()}")
    late = ends_due(world.now - _OVERDUE_SLACK) if settings.STOPPED_FOR else ()
    return violations + [f"session {one.session_id} is stopped beyond {one.due_at}" for one in late]


def nothing_outlives_its_kernel(world: World) -> Violations:
    """L-05: no container belongs to an ended kernel."""
    ended = set(Kernel.objects.filter(pk__in=_sighted(world), status__in=TERMINAL).values_list("pk", flat=True))
    return [f"kernel {sighted.kernel_id} has ended but its container is there" for sighted in world.engine or ()
            if sighted.kernel_id in ended]  # fmt: skip


def containers_and_kernels_agree(world: World) -> Violations:
    """L-06: every container belongs to a live kernel, and every running kernel has one."""
    if world.engine is None:
        return []
    live = dict(Kernel.objects.filter(status__in=PLACED).values_list("pk", "generation"))
    strangers = [s.kernel_id for s in world.engine if s.running and live.get(s.kernel_id) != s.generation]
    present = {s.kernel_id for s in world.engine if s.running}
    running = Kernel.objects.filter(status=Status.RUNNING, agent__status=Agent.Status.ALIVE)
    if world.agents is not None:
        running = running.filter(agent__in=world.agents)
    missing = running.exclude(pk__in=present).values_list("pk", flat=True)
    return [f"container of kernel {kernel} belongs to no live kernel" for kernel in strangers] + [
        f"kernel {kernel} is RUNNING without a container" for kernel in missing
    ]


CHECKS: dict[str, Check] = {
    "I-01": session_has_owner_and_kernels,
    "I-02": history_follows_the_table,
    "I-03": terminal_rows_are_complete,
    "I-04": one_container_per_kernel,
    "I-05": one_kernel_per_rank,
    "I-06": no_container_from_the_future,
    "I-07": ledger_matches_live_kernels,
    "I-08": no_agent_is_overfull,
    "I-15": nobody_is_collected_by_surprise,
    "I-16": mounts_follow_their_session,
    "L-01": nothing_is_overdue,
    "L-05": nothing_outlives_its_kernel,
    "L-06": containers_and_kernels_agree,
    **FOLDER_CHECKS,
}


def run_checks(world: World, names: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return the violations by check, without checks that found none. ``names``: only these checks run, if given."""
    return violations_of(CHECKS, world, names)


def violations_of(checks: Mapping[str, Check], world: World, names: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return the violations of these checks by name, without checks that found none. ``names``: only these checks run,
    if given."""
    found = {name: check(world) for name, check in checks.items() if not names or name in names}
    return {name: violations for name, violations in found.items() if violations}


def _sighted(world: World) -> list[UUID]:
    return [sighted.kernel_id for sighted in world.engine or ()]
