"""Database → snapshot: one resource group as the scheduler sees it, in a fixed number of queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count

from backendai.activity.models import BackgroundJob
from backendai.activity.services import newest_jobs
from backendai.catalog.models import Image, ImageOnAgent
from backendai.catalog.services import BUILD_JOB
from backendai.cluster.models import Agent, ResourceGroup
from backendai.compute.models import ComputeSession, Kernel
from backendai.compute.services.ledger import occupied_by_agent
from backendai.compute.status import PLACED, Status
from backendai.core.slots import Slots
from backendai.scheduler.snapshot import AgentView, ImageBuild, KernelView, Rules, SessionView, Snapshot

MOST_PER_PASS = 10_000
_CONTAINERS = "docker"


def read_snapshot(group: ResourceGroup, now: datetime) -> Snapshot:
    """Return the group's agents and pending sessions at ``now``; at most seven queries, whatever their number."""
    agents = list(Agent.objects.registered().filter(resource_group=group))
    sessions = list(_pending(group))
    return Snapshot(
        now=now,
        group=group.name,
        agents=tuple(_agent_views(agents)) if sessions else (),
        pending=tuple(_session_views(sessions, agents)) if sessions else (),
        rules=Rules(sequence=group.sequence, selection=group.selection, retries_to_skip=group.retries_to_skip),
    )


def _pending(group: ResourceGroup) -> Iterable[tuple[Any, ...]]:
    rows = ComputeSession.objects.pending().filter(resource_group=group).order_by("-priority", "created_at", "pk")
    return rows.values_list(
        "pk", "name", "created_at", "priority", "starts_at", "image_id", "attempts", "avoid_agents"
    )[:MOST_PER_PASS]


def _agent_views(agents: list[Agent]) -> Iterable[AgentView]:
    ids = [agent.pk for agent in agents]
    occupied = occupied_by_agent(ids)
    counts = dict(
        Kernel.objects.filter(agent__in=ids, status__in=PLACED)
        .values_list("agent_id")
        .annotate(number=Count("pk"))
        .order_by()
    )
    for agent in agents:
        yield AgentView(
            id=agent.pk,
            name=agent.name,
            architecture=agent.architecture,
            capacity=agent.slots,
            occupied=occupied.get(agent.pk, Slots()),
            alive=agent.status == Agent.Status.ALIVE,
            schedulable=agent.schedulable,
            kernels=counts.get(agent.pk, 0),
            max_kernels=agent.max_kernels,
        )


def _session_views(sessions: list[tuple[Any, ...]], agents: list[Agent]) -> Iterable[SessionView]:
    images = Image.objects.in_bulk({row[5] for row in sessions})
    builds = _builds(images.values(), agents)
    kernels: dict[UUID, list[KernelView]] = defaultdict(list)
    rows = Kernel.objects.filter(session__in=[row[0] for row in sessions], status=Status.PENDING).order_by("rank")
    architecture = {row[0]: images[row[5]].architecture for row in sessions}
    for kernel_id, session_id, slots in rows.values_list("pk", "session_id", "slots"):
        kernels[session_id].append(KernelView(kernel_id, Slots.parse(slots), architecture[session_id]))
    for pk, name, created_at, priority, starts_at, image_id, attempts, avoid in sessions:
        if kernels[pk]:
            yield SessionView(
                id=pk,
                name=name,
                created_at=created_at,
                priority=priority,
                kernels=tuple(kernels[pk]),
                starts_at=starts_at,
                image=images[image_id].name,
                image_build=builds.get(image_id),
                attempts=attempts,
                avoid_agents=frozenset(UUID(agent) for agent in avoid),
            )


def _builds(images: Iterable[Image], agents: list[Agent]) -> dict[UUID, ImageBuild]:
    """Return how far the images are that are made on the nodes themselves and that no agent of the group has yet."""
    mine = {image.reference: image for image in images if image.is_built_here}
    if not mine or not agents or any(agent.backend != _CONTAINERS for agent in agents):
        return {}
    there = set(ImageOnAgent.objects.filter(agent__in=agents, reference__in=mine).values_list("reference", flat=True))
    missing = [reference for reference in mine if reference not in there]
    jobs = newest_jobs(BUILD_JOB, missing)
    return {mine[reference].pk: _build(mine[reference], jobs.get(reference)) for reference in missing}


def _build(image: Image, job: BackgroundJob | None) -> ImageBuild:
    if job is None:
        return ImageBuild(None, f"No node has {image.name} yet: bin/build-images makes it there.")
    if job.status == BackgroundJob.Status.DONE:
        return ImageBuild(None, "It is built; the nodes are about to see it.")
    return ImageBuild(job.progress, job.message, job.status == BackgroundJob.Status.FAILED, job.fix)
