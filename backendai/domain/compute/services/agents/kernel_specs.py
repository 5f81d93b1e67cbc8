"""Builds kernel specs: everything that an agent needs to start a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings

from backendai.base.core.errors import NotFound
from backendai.base.db.bulk import among
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.messages import HomeFile, KernelSpec, ReadyCheck, mode_of
from backendai.domain.accounts.homes import Home, Residents, homes_of
from backendai.domain.cluster.capabilities import capabilities_of
from backendai.domain.cluster.models import Agent
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
    found = specs_for({kernel_id: agent}, also_running=True)
    if kernel_id not in found:
        raise NotFound("This kernel is not wanted on this agent.")
    return found[kernel_id]


def specs_for(agents: Mapping[UUID, Agent], *, also_running: bool = False) -> dict[UUID, KernelSpec]:
    """Return specs of starting (or ``also_running``) kernels. The result and ``agents`` have kernel ids as keys."""
    if not agents:
        return {}
    wanted = STARTING | {Status.RUNNING} if also_running else STARTING
    due = Kernel.objects.filter(pk__in=among(list(agents)), status__in=wanted, is_held=False)
    rows = due.select_related(
        "image", "session__image", "session__owner", "session__resource_group", "session__project__domain"
    )
    kernels = [kernel for kernel in rows.order_by() if kernel.agent_id == agents[kernel.pk].pk]
    sessions = {kernel.session_id: kernel.session for kernel in kernels}
    files = files_of_sessions({pk for pk, session in sessions.items() if session.file_bytes})
    mounts = read_mounts({pk for pk, session in sessions.items() if session.mount_count})
    residents = {pk: _residents(session) for pk, session in sessions.items()}
    homes = homes_of(set(residents.values()))
    siblings = siblings_of({pk for pk, session in sessions.items() if session.cluster_size > 1})
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


def _residents(session: ComputeSession) -> Residents:
    return Residents(session.owner_id, session.project_id, session.project.domain_id)


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
