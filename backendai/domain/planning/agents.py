"""Reads the agents of one resource group from the database in the scheduler's form."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Count, QuerySet, TextField
from django.db.models.functions import Cast

from backendai.base.core.image_names import pinned
from backendai.base.core.messages import Message
from backendai.base.core.slots import MILLI, Slots
from backendai.base.db.bulk import among, id_of, raw_id
from backendai.base.wire.capabilities import Capability
from backendai.domain.activity.jobs import newest_jobs
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.catalog.models import Image, ImageOnAgent
from backendai.domain.catalog.services import BUILD_JOB
from backendai.domain.cluster.capabilities import capabilities_in
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.services.status.ledger import (
    devices_by_agent,
    kernels_by_agent,
    occupied_by_agent,
    slots_of,
)
from backendai.domain.compute.status import PLACED
from backendai.domain.planning.storage import NO_OFFER, storage_offers
from backendai.scheduler.snapshot import AgentView, DeviceView, ImageBuild

_NO_DEVICES = "{}"
_UNHEALTHY = "accelerator-unhealthy"


class AgentRow(NamedTuple):
    """The columns of one agent. The last four are JSON text."""

    id: UUID
    name: str
    architecture: str
    backend: str
    status: str
    schedulable: bool
    max_kernels: int | None
    low_disk: bool
    unknown_running: int
    fault: str
    drain_started_at: datetime | None
    drain_ends_at: datetime | None
    notes: str
    capabilities: str | None
    devices: str
    capacity: str

    @property
    def obstacle(self) -> str:
        """The reason why the agent takes no sessions, as one sentence; empty if it takes sessions."""
        if self.fault or not self.unknown_running:
            return self.fault
        if self.unknown_running == 1:
            return Message("1 unknown kernel runs there. An administrator must adopt or remove it.")
        return Message(
            "{unknown_running} unknown kernels run there. An administrator must adopt or remove them.",
            unknown_running=self.unknown_running,
        )

    @property
    def unhealthy(self) -> str:
        """The agent's sentence about accelerators that it does not offer; empty if there is none."""
        if _UNHEALTHY not in self.notes:  # most agents have no notes
            return ""
        return next((str(note["message"])[:200] for note in json.loads(self.notes) if note["code"] == _UNHEALTHY), "")

    @property
    def is_draining(self) -> bool:
        """Whether an administrator drains the agent, and it still answers."""
        return self.status == Agent.Status.DRAINING and self.drain_started_at is not None

    @property
    def fetches(self) -> bool:
        """Whether the agent can start every image of a registry: it can pull it, or runs no programs at all."""
        if self.can(Capability.NATIVE):
            return False
        return not self.low_disk or not self.can(Capability.LISTED_IMAGES)

    def can(self, capability: Capability) -> bool:
        """Return whether the agent has this capability."""
        return capability in capabilities_in(self.capabilities, self.backend)


def read_agent_rows(group: ResourceGroup) -> list[AgentRow]:
    """Return the group's registered agents whose engine has answered at least once. One query."""
    return _read(list(_rows(group.pk)))


def agent_rows_of(group: str) -> list[AgentRow]:
    """Return the same agents of the group with this name. One query."""
    return _read(list(_rows_of(group)))


def images_there(
    agents: Sequence[AgentRow], made_here: Mapping[str, Image], fetched: Collection[Image] = ()
) -> Mapping[UUID, frozenset[str]]:
    """Return the images that each agent has, by agent.

    ``made_here``: images built or saved locally. ``fetched``: images of registries; an agent lacks one only if it has
    not pulled it and cannot pull. Agents with native kernels have every image with a native command; simulated agents
    have all images. At most two queries.
    """
    there: dict[UUID, set[str]] = defaultdict(set)
    if made_here:
        with_engine = [agent.id for agent in agents if agent.can(Capability.LISTED_IMAGES)]
        rows = ImageOnAgent.objects.filter(agent__in=among(with_engine), reference__in=list(made_here))
        for agent_id, reference in rows.values_list("agent_id", "reference"):
            there[agent_id].add(reference)
    if fetched:
        _add_fetched(there, agents, fetched)
    images = {**made_here, **{image.reference: image for image in fetched}}
    everything = frozenset(images)
    of_containers = {name for name, image in images.items() if image.is_customized or not image.process_reference}
    of_processes = everything - of_containers
    return {
        agent.id: frozenset(there[agent.id])
        if agent.can(Capability.LISTED_IMAGES)
        else of_processes
        if agent.can(Capability.NATIVE)
        else everything
        for agent in agents
    }


def images_for(agent: Agent) -> tuple[list[Image], int]:
    """Return the catalogue's images that can start on the agent now, and the number of all. Three queries."""
    images = list(Image.objects.kept().filter(is_enabled=True, is_customized=False).order_by("name"))
    row = next((one for one in read_agent_rows(agent.resource_group) if one.id == agent.pk), None)
    if row is None:
        return [], len(images)
    made_here = {image.reference: image for image in images if image.is_on_nodes_only}
    there = images_there([row], made_here, [image for image in images if not image.is_on_nodes_only])[row.id]
    if row.can(Capability.NATIVE):
        there = frozenset(image.reference for image in images if image.process_reference)
    fitting = [image for image in images if image.architecture in ("", row.architecture)]
    return [image for image in fitting if image.reference in there], len(images)


def lacking_image(rows: Sequence[AgentRow], image: Image) -> frozenset[UUID]:
    """Return the agents that cannot start the image: they have no containers, or lack it and cannot get it. The
    scheduler rules out the same agents. At most one query."""
    if not image.name:
        return frozenset()
    made, fetched = ({image.reference: image}, []) if image.is_on_nodes_only else ({}, [image])
    if fetched and all(row.fetches for row in rows):
        return frozenset()
    there = images_there(rows, made, fetched)
    return frozenset(row.id for row in rows if image.reference not in there[row.id])


def lacked_by_all(rows: Sequence[AgentRow], images: Collection[Image]) -> dict[UUID, str]:
    """Return what all these agents lack of each image that none of them can start, by the image's id: its
    ``architecture``, ``containers``, or the ``image``, which they cannot get now. At most two queries."""
    kinds = {(row.architecture, row.can(Capability.NATIVE), row.fetches) for row in rows}
    lacking: dict[UUID, str] = {}
    asked: list[Image] = []
    for image in images:
        is_native = bool(image.process_reference) and not image.is_customized
        suitable = [kind[1:] for kind in kinds if image.architecture in ("", kind[0])]
        able = [(native, fetches) for native, fetches in suitable if is_native or not native]
        if not able:
            lacking[image.pk] = "containers" if suitable else "architecture"
        elif not any(native or (fetches and not image.is_on_nodes_only) for native, fetches in able):
            asked.append(image)
    made = {image.reference: image for image in asked if image.is_on_nodes_only}
    there = images_there(rows, made, [image for image in asked if not image.is_on_nodes_only])
    found = {(reference, name) for row in rows for reference in there[row.id] for name in ("", row.architecture)}
    return lacking | {image.pk: "image" for image in asked if (image.reference, image.architecture) not in found}


def _add_fetched(there: dict[UUID, set[str]], agents: Sequence[AgentRow], images: Collection[Image]) -> None:
    """Add images of registries: all of them to agents that can pull, and to others the images that they have under
    their name or digest."""
    names = {name: image for image in images for name in (image.reference, pinned(image.reference, image.digest))}
    bound = [agent.id for agent in agents if not agent.fetches]
    for agent in agents:
        if agent.fetches:
            there[agent.id].update(image.reference for image in images)
    rows = ImageOnAgent.objects.filter(agent__in=among(bound), reference__in=list(names))
    for agent_id, reference, digest in rows.values_list("agent_id", "reference", "digest"):
        image = names[reference]
        if image.digest in ("", digest):
            there[agent_id].add(image.reference)


def read_agents(
    group: ResourceGroup,
    rows: Sequence[AgentRow],
    images: Mapping[UUID, frozenset[str]],
    launches: Collection[UUID],
    *,
    with_storage: bool = False,
) -> tuple[AgentView, ...]:
    """Return the agents with their allocations, and their companions of ``launches``. Two to five queries."""
    ids = [row.id for row in rows]
    occupied, kernels = occupied_by_agent(ids), kernels_by_agent(ids)
    taken = devices_by_agent(ids) if any(row.devices != _NO_DEVICES for row in rows) else {}
    companions = _companions(ids, launches)
    offers = storage_offers(ids) if with_storage else {}
    return tuple(
        AgentView(
            id=row.id,
            name=row.name,
            architecture=row.architecture,
            capacity=slots_of(row.capacity),
            occupied=occupied.get(row.id, _NOTHING),
            alive=row.status == Agent.Status.ALIVE or row.is_draining,
            schedulable=row.schedulable and not row.obstacle and not row.is_draining,
            kernels=kernels.get(row.id, 0),
            max_kernels=group.max_kernels_per_agent if row.max_kernels is None else row.max_kernels,
            devices=_devices(row, taken.get(row.id, {})),
            images=images.get(row.id, frozenset()),
            low_disk=row.low_disk,
            fault=row.obstacle if row.schedulable else "",
            companions=companions.get(row.id, {}),
            storage=offers.get(row.id, NO_OFFER).features,
            storage_faults=dict(offers.get(row.id, NO_OFFER).faults),
            joins=row.can(Capability.CLUSTER_NETWORK),
            is_native=row.can(Capability.NATIVE),
            draining=row.is_draining,
            drain_ends_at=row.drain_ends_at,
            unhealthy=row.unhealthy,
        )
        for row in rows
    )


def builds_of(
    images: Mapping[str, Image], agents: Sequence[AgentRow], there: Mapping[UUID, frozenset[str]]
) -> dict[UUID, ImageBuild]:
    """Return the progress of builds whose image no agent has yet, by image id. Only local builds are included. Empty if
    an agent of the group runs no containers."""
    if not agents or not all(agent.can(Capability.LISTED_IMAGES) for agent in agents):
        return {}
    # Saved images are left out: no build creates them where they are missing.
    missing = {name for name, image in images.items() if image.is_built_here} - frozenset().union(*there.values())
    jobs = newest_jobs(BUILD_JOB, missing) if missing else {}
    return {images[reference].pk: _build(images[reference], jobs.get(reference)) for reference in missing}


def _read(rows: Sequence[Any]) -> list[AgentRow]:
    return [AgentRow(id_of(key), *others) for key, *others in rows]


def _rows_in(**group: Any) -> QuerySet[Any, Any]:
    rows = Agent.objects.registered().filter(**group).exclude(capacity={}).order_by("name")
    texts = [Cast(name, TextField()) for name in AgentRow._fields[-4:]]
    return rows.annotate(key=raw_id("id")).values_list("key", *AgentRow._fields[1:-4], *texts)


def _devices(row: AgentRow, taken: Mapping[str, Mapping[str, int]]) -> tuple[DeviceView, ...]:
    if row.devices == _NO_DEVICES:
        return ()
    return tuple(
        DeviceView(device, slot, MILLI, taken.get(slot, {}).get(device, 0))
        for slot, devices in json.loads(row.devices).items()
        for device in devices
    )


def _companions(agent_ids: Collection[UUID], launches: Collection[UUID]) -> dict[UUID, dict[str, int]]:
    found: dict[UUID, dict[str, int]] = defaultdict(dict)
    if launches:
        rows = Kernel.objects.filter(
            session__launch_id__in=among(launches), agent__in=among(agent_ids), status__in=PLACED
        )
        counted = rows.values_list("agent_id", "session__launch_id").annotate(number=Count("pk")).order_by()
        for agent_id, launch, number in counted:
            found[agent_id][str(launch)] = number
    return found


def _build(image: Image, job: BackgroundJob | None) -> ImageBuild:
    if job is None:
        return ImageBuild(
            None, Message("No agent has {image} yet: bin/build-images builds it there.", image=image.name)
        )
    if job.status == BackgroundJob.Status.DONE:
        return ImageBuild(None, Message("It is built; the agents are about to report it."))
    has_failed = job.status in (BackgroundJob.Status.FAILED, BackgroundJob.Status.CANCELLED)
    return ImageBuild(job.progress, job.message, has_failed, job.fix)


_NOTHING = Slots()


def _rows(pk: Any) -> QuerySet[Any, Any]:
    return _rows_in(resource_group=pk)


def _rows_of(name: Any) -> QuerySet[Any, Any]:
    return _rows_in(resource_group__name=name)
