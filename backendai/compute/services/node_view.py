"""What nodes should do now: the answer to a sync, and the specs of kernels; for one node, and for many at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.db.models import Q, QuerySet

from backendai.accounts.homes import Home, Residents, homes_of
from backendai.accounts.models import Project, User
from backendai.accounts.prepared import Prepared
from backendai.catalog.models import Image
from backendai.catalog.registry_access import access_for
from backendai.cluster.models import Agent, ResourceGroup
from backendai.compute.models import ComputeSession, Kernel
from backendai.compute.services.bulk import among
from backendai.compute.services.chores import NOTHING, Chores, chores_of
from backendai.compute.services.cluster_networks import PROCESS, Sibling, network_for, peers_of, siblings_of
from backendai.compute.services.environ import environ_of
from backendai.compute.status import PLACED, STARTING, SessionType, Status
from backendai.core.errors import NotFound
from backendai.wire.messages import Desired, KernelSighting, KernelSpec, StopOrder, SyncDown
from backendai.wire.pulls import RegistryAccess
from backendai.wire.tickets import public_key_of

# Of a row for one kernel the many columns take longest; all that a spec is made of is here.
_SPEC_COLUMNS = (
    "generation",
    "role",
    "index",
    "rank",
    "hostname",
    "slots",
    "devices",
    "session__name",
    "session__session_type",
    "session__access_key",
    "session__shm_bytes",
    "session__cluster_size",
    "session__cluster_network",
    "session__environ",
    "session__startup_command",
    "session__preopen_ports",
    "session__image__reference",
    "session__image__process_reference",
    "session__image__architecture",
    "session__image__labels",
    "session__image__services",
    "session__image__is_built_here",
    "session__image_digest",
    "session__owner__email",
    "session__project__domain",
    "session__owner__full_name",
    "session__resource_group__pull_timeout",
    "session__resource_group__create_timeout",
)
_GRACE = 5.0  # seconds between the polite signal and the kill


@dataclass(frozen=True, slots=True)
class Asking:
    """A node among many. ``seen``: what it has, if it syncs now. ``known``: starts that it works on already."""

    agent: Agent
    seen: Sequence[KernelSighting] | None = None
    want_images: bool = False
    known: Collection[tuple[UUID, int]] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """What one of them should do. ``down`` answers its sync."""

    down: SyncDown | None = None
    start: list[KernelSpec] = field(default_factory=list)
    stop: list[StopOrder] = field(default_factory=list)


class _Live(NamedTuple):
    """A kernel that holds slots on a node."""

    pk: UUID
    agent_id: UUID
    generation: int
    status: str
    is_forced: bool


def work_for(agent: Agent, seen: Sequence[KernelSighting], *, want_images: bool) -> SyncDown:
    """Return what this node should run, stop, remove, fetch and make, given what it has; two queries."""
    chores = chores_of([agent.pk]).get(agent.pk, NOTHING)
    return _answer(_live(Q(agent=agent)), seen, want_images, chores)


def work_for_each(asking: Sequence[Asking]) -> list[Work]:
    """Return the work of many nodes, in their order, with the specs of what they should start and do not know yet; a
    fixed number of queries."""
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
    specs, chores = _specs(new), chores_of(syncing) if syncing else {}
    works = []
    for one in asking:
        live = of_agent[one.agent.pk]
        down = None if one.seen is None else _answer(live, one.seen, one.want_images, chores.get(one.agent.pk, NOTHING))
        start = [specs[kernel.pk] for kernel in live if kernel.pk in specs]
        works.append(Work(down, start, _stops(live)))
    return works


def has_work(agent_id: UUID) -> bool:
    """Return whether a long poll should end now: something of this node waits to be started or stopped."""
    return Kernel.objects.filter(agent=agent_id, status__in=STARTING | {Status.TERMINATING}).exists()


def spec_for(agent: Agent, kernel_id: UUID) -> KernelSpec:
    """Return the spec of one kernel that this node should run; NotFound when it should not (any more)."""
    kernel = _WANTED.first(agent, kernel_id)
    if kernel is None:
        raise NotFound("This kernel is not wanted on this agent.")
    siblings = siblings_of([kernel.session_id] if kernel.session.cluster_size > 1 else [])
    residents = _residents(kernel.session, kernel.session.project.domain_id)
    return _spec(agent, kernel, siblings.get(kernel.session_id, ()), homes_of([residents])[residents])


def registry_access_for(agent: Agent, kernel_id: UUID) -> RegistryAccess:
    """Return the account for the registry of a kernel's image, which this node is about to pull; NotFound when the
    kernel should not start here (any more)."""
    wanted = Kernel.objects.filter(pk=kernel_id, agent=agent, status__in=STARTING)
    kernel = wanted.select_related("session__image").first()
    if kernel is None:
        raise NotFound("This kernel does not start on this agent.")
    return access_for(kernel.session.image)


def _live(which: Q) -> list[_Live]:
    rows = Kernel.objects.filter(which, status__in=PLACED).order_by()
    columns = rows.values_list("pk", "agent_id", "generation", "status", "forced_at")
    return [_Live(pk, agent, generation, status, bool(forced)) for pk, agent, generation, status, forced in columns]


def _answer(live: Sequence[_Live], seen: Sequence[KernelSighting], want_images: bool, chores: Chores) -> SyncDown:
    return SyncDown(
        deployment=settings.DEPLOYMENT,
        public_key=_public_key(settings.TICKET_KEY),
        interval=settings.SYNC_INTERVAL.total_seconds(),
        want_images=want_images,
        desired=[
            Desired(kernel_id=kernel.pk, generation=kernel.generation, started=kernel.status == Status.RUNNING)
            for kernel in live
            if kernel.status != Status.TERMINATING
        ],
        stop=_stops(live),
        unwanted=_unwanted(live, seen),
        pulls=chores.pulls,
        commits=chores.commits,
        drops=chores.drops,
    )


_public_key = lru_cache(maxsize=4)(public_key_of)  # reading a key is a good part of an answer


def _stops(live: Iterable[_Live]) -> list[StopOrder]:
    return [
        StopOrder(kernel_id=kernel.pk, generation=kernel.generation, grace=0.0 if kernel.is_forced else _GRACE)
        for kernel in live
        if kernel.status == Status.TERMINATING
    ]


def _specs(agents: Mapping[UUID, Agent]) -> dict[UUID, KernelSpec]:
    """Return the specs of these kernels on these agents. What thousands of them share is read once."""
    if not agents:
        return {}
    rows = Kernel.objects.filter(pk__in=among(list(agents)), status__in=STARTING).select_related("session")
    kernels = [kernel for kernel in rows.order_by() if kernel.agent_id == agents[kernel.pk].pk]
    sessions = [kernel.session for kernel in kernels]
    images = Image.objects.in_bulk({session.image_id for session in sessions})
    owners = User.objects.in_bulk({session.owner_id for session in sessions})
    groups = ResourceGroup.objects.in_bulk({session.resource_group_id for session in sessions})
    domains = dict(
        Project.objects.filter(pk__in={session.project_id for session in sessions}).values_list("pk", "domain")
    )
    residents = {session.pk: _residents(session, domains[session.project_id]) for session in sessions}
    homes = homes_of(set(residents.values()))
    for session in sessions:
        session.image, session.owner = images[session.image_id], owners[session.owner_id]
        session.resource_group = groups[session.resource_group_id]
    siblings = siblings_of({session.pk for session in sessions if session.cluster_size > 1})
    return {
        kernel.pk: _spec(
            agents[kernel.pk],
            kernel,
            siblings.get(kernel.session_id, ()),
            homes[residents[kernel.session_id]],
        )
        for kernel in kernels
    }


def _unwanted(live: Iterable[_Live], seen: Sequence[KernelSighting]) -> list[KernelSighting]:
    wanted = {(kernel.pk, kernel.generation) for kernel in live}
    return [sighting for sighting in seen if (sighting.kernel_id, sighting.generation) not in wanted]


def _residents(session: ComputeSession, domain_id: int) -> Residents:
    return Residents(session.owner_id, session.project_id, domain_id)


def _spec(agent: Agent, kernel: Kernel, siblings: Sequence[Sibling], home: Home) -> KernelSpec:
    session, group = kernel.session, kernel.session.resource_group
    network = network_for(agent, kernel, siblings)
    peers = peers_of(agent, kernel, siblings, network)
    native = agent.backend == PROCESS and session.image.process_reference
    return KernelSpec(
        deployment=settings.DEPLOYMENT,
        kernel_id=kernel.pk,
        session_id=session.pk,
        generation=kernel.generation,
        agent=agent.name,
        session_name=session.name,
        session_type="batch" if session.session_type == SessionType.BATCH else "interactive",
        image=session.image.process_reference if native else session.image.reference,
        digest="" if native or session.image.is_built_here else session.image_digest,
        architecture=session.image.architecture,
        role=kernel.role,
        index=kernel.index,
        hostname=kernel.hostname,
        slots=kernel.slots,
        devices=kernel.devices,
        shm_bytes=session.shm_bytes,
        scratch_bytes=settings.SCRATCH_BYTES,
        environ=environ_of(kernel, [peer.hostname for peer in peers]),
        command=session.startup_command,
        files=list(home.files),
        bootstrap=home.bootstrap,
        peers=peers,
        cluster_size=session.cluster_size,
        network=network,
        pull_timeout=group.pull_timeout.total_seconds(),
        create_timeout=group.create_timeout.total_seconds(),
    )


def _wanted(agent: Agent, kernel_id: UUID) -> QuerySet[Kernel]:
    rows = Kernel.objects.filter(pk=kernel_id, agent=agent, status__in=STARTING | {Status.RUNNING})
    related = rows.select_related("session__image", "session__owner", "session__resource_group", "session__project")
    return related.only(*_SPEC_COLUMNS).order_by()[:1]


_WANTED = Prepared(_wanted)
