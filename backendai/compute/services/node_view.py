"""What one node should do now: the answer to its sync, and the spec of one kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from django.conf import settings

from backendai.cluster.models import Agent
from backendai.compute.models import Kernel
from backendai.compute.services.environ import environ_of
from backendai.compute.status import PLACED, STARTING, SessionType, Status
from backendai.core.errors import NotFound
from backendai.wire.messages import Desired, KernelSighting, KernelSpec, Peer, StopOrder, SyncDown
from backendai.wire.tickets import public_key_of

_PROCESS = "process"


def work_for(agent: Agent, seen: Sequence[KernelSighting], *, want_images: bool) -> SyncDown:
    """Return what this node should run, stop and remove, given what it has; one query."""
    live = list(Kernel.objects.filter(agent=agent, status__in=PLACED).only("pk", "generation", "status"))
    keep = [kernel for kernel in live if kernel.status != Status.TERMINATING]
    return SyncDown(
        deployment=settings.DEPLOYMENT,
        public_key=public_key_of(settings.TICKET_KEY),
        interval=settings.SYNC_INTERVAL.total_seconds(),
        want_images=want_images,
        desired=[
            Desired(kernel_id=kernel.pk, generation=kernel.generation, started=kernel.status == Status.RUNNING)
            for kernel in keep
        ],
        stop=[
            StopOrder(kernel_id=kernel.pk, generation=kernel.generation)
            for kernel in live
            if kernel.status == Status.TERMINATING
        ],
        unwanted=_unwanted(live, seen),
    )


def has_work(agent_id: UUID) -> bool:
    """Return whether a long poll should end now: something of this node waits to be started or stopped."""
    return Kernel.objects.filter(agent=agent_id, status__in=STARTING | {Status.TERMINATING}).exists()


def spec_for(agent: Agent, kernel_id: UUID) -> KernelSpec:
    """Return the spec of one kernel that this node should run; NotFound when it should not (any more)."""
    kernel = (
        Kernel.objects.filter(pk=kernel_id, agent=agent, status__in=STARTING | {Status.RUNNING})
        .select_related("session", "session__image", "session__owner", "session__resource_group")
        .first()
    )
    if kernel is None:
        raise NotFound("This kernel is not wanted on this agent.")
    hostnames = [kernel.hostname]
    if kernel.session.cluster_size > 1:
        siblings = Kernel.objects.filter(session=kernel.session_id).order_by("rank")
        hostnames = list(siblings.values_list("hostname", flat=True))
    return _spec(agent, kernel, hostnames)


def _unwanted(live: Iterable[Kernel], seen: Sequence[KernelSighting]) -> list[KernelSighting]:
    wanted = {(kernel.pk, kernel.generation) for kernel in live}
    return [sighting for sighting in seen if (sighting.kernel_id, sighting.generation) not in wanted]


def _spec(agent: Agent, kernel: Kernel, hostnames: list[str]) -> KernelSpec:
    session, group = kernel.session, kernel.session.resource_group
    native = agent.backend == _PROCESS and session.image.process_reference
    return KernelSpec(
        deployment=settings.DEPLOYMENT,
        kernel_id=kernel.pk,
        session_id=session.pk,
        generation=kernel.generation,
        agent=agent.name,
        session_name=session.name,
        session_type="batch" if session.session_type == SessionType.BATCH else "interactive",
        image=session.image.process_reference if native else session.image.reference,
        architecture=session.image.architecture,
        role=kernel.role,
        index=kernel.index,
        hostname=kernel.hostname,
        slots=kernel.slots,
        devices=kernel.devices,
        shm_bytes=session.shm_bytes,
        scratch_bytes=settings.SCRATCH_BYTES,
        environ=environ_of(kernel, hostnames),
        command=session.startup_command,
        peers=[Peer(hostname=hostname) for hostname in hostnames],
        cluster_size=session.cluster_size,
        pull_timeout=group.pull_timeout.total_seconds(),
        create_timeout=group.create_timeout.total_seconds(),
    )
