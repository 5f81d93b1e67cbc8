"""Builds kernel specs: everything that an agent needs to start a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet

from backendai.base.core.errors import NotFound
from backendai.base.db.bulk import among
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.messages import HomeFile, KernelSpec, ReadyCheck, mode_of
from backendai.domain.accounts.homes import Home, Residents, homes_of
from backendai.domain.accounts.models import Project, User
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.capabilities import capabilities_of
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.cluster.site import SiteSettings, site_settings
from backendai.domain.cluster.time_limits import longest_start, unpacking_time
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.services.agents.environ import environ_of
from backendai.domain.compute.services.agents.manifests import manifest_of
from backendai.domain.compute.services.placing.cluster_access import keys_of
from backendai.domain.compute.services.placing.cluster_networks import Sibling, network_for, peers_of, siblings_of
from backendai.domain.compute.services.requests.mounts import Mounts, read_mounts
from backendai.domain.compute.services.requests.session_files import files_of_sessions, with_dotfiles
from backendai.domain.compute.status import STARTING, Status

_IMAGE_COLUMNS = ("reference", "process_reference", "architecture", "labels", "services", "is_built_here", "digest")
# Only the columns that a spec needs, as reading many columns takes longest.
_SPEC_COLUMNS = (
    "generation",
    "role",
    "index",
    "rank",
    "hostname",
    "slots",
    "devices",
    "image_digest",
    "shm_bytes",
    "environ",
    "startup_command",
    "on_failure",
    "ready",
    *(f"image__{name}" for name in _IMAGE_COLUMNS),
    *(f"session__image__{name}" for name in _IMAGE_COLUMNS),
    "session__name",
    "session__session_type",
    "session__access_key",
    "session__slots",
    "session__total_slots",
    "session__shm_bytes",
    "session__priority",
    "session__batch_timeout",
    "session__retry_on_agent_loss",
    "session__may_be_stopped",
    "session__cluster_size",
    "session__cluster_mode",
    "session__cluster_network",
    "session__done_when",
    "session__environ",
    "session__startup_command",
    "session__file_bytes",
    "session__mount_count",
    "session__stopped_at",
    "session__resumes",
    "session__start_in",
    "session__labels",
    "session__note",
    "session__preopen_ports",
    "session__image_digest",
    "session__owner__email",
    "session__project__name",
    "session__project__domain__name",
    "session__owner__full_name",
    "session__resource_group__pull_timeout",
    "session__resource_group__create_timeout",
)


@dataclass(frozen=True, slots=True)
class _SpecContext:
    """The input of a spec apart from the rows of kernel and session."""

    siblings: Sequence[Sibling]
    home: Home
    files: Sequence[HomeFile]
    site: SiteSettings
    mounts: Mounts


def spec_for(agent: Agent, kernel_id: UUID) -> KernelSpec:
    """Return the spec of a kernel that this agent should run. Raises NotFound for any other kernel."""
    kernel = next(iter(_wanted(agent, kernel_id)), None)
    if kernel is None:
        raise NotFound("This kernel is not wanted on this agent.")
    siblings = siblings_of([kernel.session_id] if kernel.session.cluster_size > 1 else [])
    residents = _residents(kernel.session, kernel.session.project.domain_id)
    own = files_of_sessions([kernel.session_id] if kernel.session.file_bytes else [])
    home, files = homes_of([residents])[residents], own.get(kernel.session_id, ())
    mounts = read_mounts([kernel.session_id] if kernel.session.mount_count else [])
    around = _SpecContext(siblings.get(kernel.session_id, ()), home, files, site_settings(), mounts)
    return _spec(agent, kernel, around)


def specs_for(agents: Mapping[UUID, Agent], *, also_running: bool = False) -> dict[UUID, KernelSpec]:
    """Return specs of starting (or ``also_running``) kernels. The result and ``agents`` have kernel ids as keys."""
    if not agents:
        return {}
    wanted = STARTING | {Status.RUNNING} if also_running else STARTING
    due = Kernel.objects.filter(pk__in=among(list(agents)), status__in=wanted, is_held=False)
    kernels = [kernel for kernel in due.select_related("session").order_by() if kernel.agent_id == agents[kernel.pk].pk]
    sessions = [kernel.session for kernel in kernels]
    images = Image.objects.in_bulk(
        {session.image_id for session in sessions} | {kernel.image_id for kernel in kernels if kernel.image_id}
    )
    owners = User.objects.in_bulk({session.owner_id for session in sessions})
    groups = ResourceGroup.objects.in_bulk({session.resource_group_id for session in sessions})
    projects = Project.objects.select_related("domain").in_bulk({session.project_id for session in sessions})
    files = files_of_sessions({session.pk for session in sessions if session.file_bytes})
    mounts = read_mounts({session.pk for session in sessions if session.mount_count})
    for session in sessions:
        session.project = projects[session.project_id]
        session.image, session.owner = images[session.image_id], owners[session.owner_id]
        session.resource_group = groups[session.resource_group_id]
    for kernel in kernels:
        kernel.image = images[kernel.image_id] if kernel.image_id else None
    residents = {session.pk: _residents(session, session.project.domain_id) for session in sessions}
    homes = homes_of(set(residents.values()))
    siblings = siblings_of({session.pk for session in sessions if session.cluster_size > 1})
    site = site_settings()
    return {
        kernel.pk: _spec(
            agents[kernel.pk],
            kernel,
            _SpecContext(
                siblings.get(kernel.session_id, ()),
                homes[residents[kernel.session_id]],
                files.get(kernel.session_id, ()),
                site,
                mounts,
            ),
        )
        for kernel in kernels
    }


def _residents(session: ComputeSession, domain_id: int) -> Residents:
    return Residents(session.owner_id, session.project_id, domain_id)


def _spec(agent: Agent, kernel: Kernel, around: _SpecContext) -> KernelSpec:
    session, group = kernel.session, kernel.session.resource_group
    network = network_for(agent, kernel, around.siblings)
    peers = peers_of(agent, kernel, around.siblings, network)
    return KernelSpec(
        deployment=settings.DEPLOYMENT,
        kernel_id=kernel.pk,
        session_id=session.pk,
        generation=kernel.generation,
        agent=agent.name,
        session_name=session.name,
        session_type=mode_of(runs_program=session.kind.takes_command),
        **_image_of(agent, kernel),
        role=kernel.role,
        index=kernel.index,
        hostname=kernel.hostname,
        slots=kernel.slots,
        devices=kernel.devices,
        shm_bytes=session.shm_bytes if kernel.shm_bytes is None else kernel.shm_bytes,
        scratch_bytes=settings.SCRATCH_BYTES,
        environ=environ_of(kernel, peers, around.site),
        authorities=around.site.session_authorities,
        command=kernel.command,
        files=with_dotfiles(around.files, around.home.files),
        bootstrap=around.home.bootstrap,
        peers=peers,
        cluster_size=session.cluster_size,
        network=network,
        keys=keys_of(session.pk) if session.cluster_size > 1 else None,
        pull_timeout=group.pull_timeout.total_seconds(),
        create_timeout=(longest_start(group, agent.slowness) + _unpacking(session)).total_seconds(),
        ready=ReadyCheck(**kernel.ready) if kernel.ready else None,
        manifest=manifest_of(kernel, agent, around.mounts.of_session(session.pk)),
        home=around.mounts.home_for(session, kernel.hostname),
        mounts=around.mounts.specs_for(session.pk, agent.pk, kernel.role),
        start_in=around.mounts.start_for(session.pk, agent.pk, session.start_in, kernel.role),
    )


def _unpacking(session: ComputeSession) -> timedelta:
    return unpacking_time() if session.stopped_at else timedelta(0)


def _image_of(agent: Agent, kernel: Kernel) -> dict[str, Any]:
    """Return the fields of the spec that name the image, or the program of a native kernel."""
    image = kernel.started_image
    native = Capability.NATIVE in capabilities_of(agent) and image.process_reference
    return {
        "image": image.process_reference if native else image.reference,
        "digest": "" if native or image.is_built_here else kernel.started_digest,
        "architecture": image.architecture,
    }


def _wanted(agent: Agent, kernel_id: UUID) -> QuerySet[Kernel]:
    rows = Kernel.objects.filter(pk=kernel_id, agent=agent, status__in=STARTING | {Status.RUNNING}, is_held=False)
    related = rows.select_related(
        "image", "session__image", "session__owner", "session__resource_group", "session__project__domain"
    )
    return related.only(*_SPEC_COLUMNS).order_by()[:1]
