"""Computes the desired state of agents, which answers their syncs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.db.models import Q
from django.db.models.functions import Now

from backendai.base.core.errors import NotFound
from backendai.base.db.bulk import among
from backendai.base.wire.images import RegistryAccess
from backendai.base.wire.messages import Desired, Epoch, KernelSighting, KernelSpec, StopOrder, SyncDown
from backendai.base.wire.node_jobs import NodeJobOrder
from backendai.base.wire.tickets import public_key_of
from backendai.domain.catalog.registry_access import access_for
from backendai.domain.cluster.epochs import read_epoch
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.node_jobs import orders_of
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.services.agents.kernel_specs import specs_for
from backendai.domain.compute.services.agents.unknown_kernels import MisplacedKernels, Syncing, misplaced_kernels
from backendai.domain.compute.status import PLACED, STARTING, Status

# Other kernels wait for a restart, or for roles that start before theirs.
_DUE = Q(Q(starts_after=None) | Q(starts_after__lte=Now()), is_held=False) | Q(status=Status.TERMINATING)
_GRACE = 5.0  # seconds between SIGTERM and SIGKILL


@dataclass(frozen=True, slots=True)
class WorkRequest:
    """One agent's request for its work. ``seen``: the kernels that it reports (None: the request is not a sync).
    ``kept``: kernels that it refuses to remove. ``known``: kernels that it is starting already."""

    agent: Agent
    seen: Sequence[KernelSighting] | None = None
    kept: Collection[tuple[UUID, int]] = ()
    want_images: bool = False
    known: Collection[tuple[UUID, int]] = ()


@dataclass(frozen=True, slots=True)
class AgentWork:
    """The work of one agent: kernels to start and to stop. ``down``: the answer to its sync (None: the request is not a
    sync)."""

    down: SyncDown | None = None
    start: list[KernelSpec] = field(default_factory=list)
    stop: list[StopOrder] = field(default_factory=list)


class _Live(NamedTuple):
    """A kernel that holds slots on an agent."""

    pk: UUID
    agent_id: UUID
    generation: int
    status: str
    is_forced: bool


def work_for(
    agent: Agent,
    seen: Sequence[KernelSighting],
    *,
    want_images: bool,
    kept: Collection[tuple[UUID, int]] = (),
) -> SyncDown:
    """Return the answer to one agent's sync: kernels to run, stop and remove, and jobs. Three queries, and two more if
    the agent reports kernels that should not run there."""
    asking = WorkRequest(agent, seen, kept, want_images)
    jobs = orders_of([agent.pk]).get(agent.pk, [])
    live = _live(Q(agent=agent))
    return _answer(asking, live, jobs, misplaced_kernels([_syncing(asking, live)]), read_epoch())


def work_for_each(asking: Sequence[WorkRequest]) -> list[AgentWork]:
    """Return for each agent, in the same order, the kernels to start and to stop, and the answer to its sync.

    A kernel to start comes as its spec, unless the agent knows the spec already. A fixed number of queries.
    """
    syncing = [one.agent.pk for one in asking if one.seen is not None]
    everything = Q(agent__in=among(syncing))
    changing = Q(agent__in=among([one.agent.pk for one in asking]), status__in=STARTING | {Status.TERMINATING})
    of_agent: dict[UUID, list[_Live]] = defaultdict(list)
    for kernel in _live(everything | changing if syncing else changing):
        of_agent[kernel.agent_id].append(kernel)
    new = {
        kernel.pk: one.agent
        for one in asking
        for kernel in of_agent[one.agent.pk]
        if kernel.status in STARTING and (kernel.pk, kernel.generation) not in one.known
    }
    specs, jobs = specs_for(new), orders_of(syncing) if syncing else {}
    misplaced = misplaced_kernels([_syncing(one, of_agent[one.agent.pk]) for one in asking if one.seen is not None])
    epoch = read_epoch() if syncing else None
    works = []
    for one in asking:
        live, down = of_agent[one.agent.pk], None
        if one.seen is not None:
            down = _answer(one, live, jobs.get(one.agent.pk, []), misplaced, epoch)
        start = [specs[kernel.pk] for kernel in live if kernel.pk in specs]
        works.append(AgentWork(down, start, _stops(live)))
    return works


def has_work(agent_id: UUID) -> bool:
    """Return whether the agent has something to start or stop. Its long poll then ends."""
    return Kernel.objects.filter(_DUE, agent=agent_id, status__in=STARTING | {Status.TERMINATING}).exists()


def registry_access_for(agent: Agent, kernel_id: UUID) -> RegistryAccess:
    """Return the registry account for the image of a kernel that is starting on this agent. Raises NotFound for any
    other kernel."""
    wanted = Kernel.objects.filter(pk=kernel_id, agent=agent, status__in=STARTING)
    kernel = wanted.select_related("image", "session__image").first()
    if kernel is None:
        raise NotFound("This kernel does not start on this agent.")
    return access_for(kernel.started_image)


def _live(which: Q) -> list[_Live]:
    rows = Kernel.objects.filter(which, _DUE, status__in=PLACED).order_by()
    columns = rows.values_list("pk", "agent_id", "generation", "status", "forced_at")
    return [_Live(pk, agent, generation, status, bool(forced)) for pk, agent, generation, status, forced in columns]


def _answer(
    one: WorkRequest,
    live: Sequence[_Live],
    jobs: list[NodeJobOrder],
    misplaced: Mapping[UUID, MisplacedKernels],
    epoch: Epoch | None,
) -> SyncDown:
    found = misplaced.get(one.agent.pk, MisplacedKernels())
    return SyncDown(
        deployment=settings.DEPLOYMENT,
        public_key=_public_key(settings.TICKET_KEY),
        interval=settings.SYNC_INTERVAL.total_seconds(),
        want_images=one.want_images,
        desired=[
            Desired(kernel_id=kernel.pk, generation=kernel.generation, started=kernel.status == Status.RUNNING)
            for kernel in live
            if kernel.status != Status.TERMINATING
        ],
        stop=_stops(live),
        unwanted=[*found.over, *found.removals],  # older versions of agents do not know ``removals``
        unknown=found.unknown,
        removals=found.removals,
        epoch=epoch,
        jobs=jobs,
        takes_bundles=True,
    )


_public_key = lru_cache(maxsize=4)(public_key_of)  # cached, as reading a key takes much of the time of an answer


def _stops(live: Iterable[_Live]) -> list[StopOrder]:
    return [
        StopOrder(kernel_id=kernel.pk, generation=kernel.generation, grace=0.0 if kernel.is_forced else _GRACE)
        for kernel in live
        if kernel.status == Status.TERMINATING
    ]


def _syncing(one: WorkRequest, live: Iterable[_Live]) -> Syncing:
    return Syncing(one.agent.pk, one.seen or (), one.kept, {(kernel.pk, kernel.generation) for kernel in live})
