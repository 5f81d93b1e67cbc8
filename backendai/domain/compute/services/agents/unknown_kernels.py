"""Handles kernels that agents have and this database does not know. They keep running until an administrator decides.

A restored database does not contain kernels started after the backup, and must not end these. A kernel counts as ended
only if its row says so, for the same or a later generation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db import transaction

from backendai.base.core.errors import Conflict, NotAllowed
from backendai.base.db.bulk import among
from backendai.base.wire.messages import KernelSighting, SyncDown
from backendai.base.wire.messages import UnknownKernel as ReportedKernel
from backendai.domain.accounts.models import User
from backendai.domain.activity.services import audit
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Kernel, UnknownKernel
from backendai.domain.compute.services.agents.manifests import read_manifest

Key = tuple[UUID, int]


@dataclass(slots=True)
class MisplacedKernels:
    """The reported kernels of one agent that should not run there according to the database.

    ``over``: the row has ended or moved. ``unknown``: there is no row, the row is older, or the agent refuses the
    removal. ``removals``: an administrator ordered the removal.
    """

    over: list[KernelSighting] = field(default_factory=list)
    unknown: list[KernelSighting] = field(default_factory=list)
    removals: list[KernelSighting] = field(default_factory=list)


class Syncing(NamedTuple):
    """An agent's report and the database's state. ``seen``: the kernels that the agent has. ``kept``: kernels that it
    refuses to remove. ``live``: kernels that are live on it according to the database."""

    agent_id: UUID
    seen: Sequence[KernelSighting]
    kept: Collection[Key]
    live: Set[Key]


def misplaced_kernels(agents: Iterable[Syncing]) -> dict[UUID, MisplacedKernels]:
    """Return by agent the reported kernels that should not run there according to the database. Two queries; none if
    there are no such kernels."""
    seen = {
        one.agent_id: (strange, one.kept)
        for one in agents
        if (strange := [seen for seen in one.seen if (seen.kernel_id, seen.generation) not in one.live])
    }
    if not seen:
        return {}
    ids = {one.kernel_id for strange, _ in seen.values() for one in strange}
    newest = dict(Kernel.objects.filter(pk__in=among(list(ids))).order_by().values_list("pk", "generation"))
    rows = UnknownKernel.objects.filter(agent__in=among(list(seen)), removal_at__isnull=False).order_by()
    decided = set(rows.values_list("agent_id", "kernel_id", "generation"))
    found: dict[UUID, MisplacedKernels] = defaultdict(MisplacedKernels)
    for agent_id, (strange, kept) in seen.items():
        for one in strange:
            key = (one.kernel_id, one.generation)
            if (agent_id, *key) in decided:
                found[agent_id].removals.append(one)
            elif key in kept or one.generation > newest.get(one.kernel_id, -1):
                found[agent_id].unknown.append(one)
            else:
                found[agent_id].over.append(one)
    return found


def note_unknown(agent: Agent, answer: SyncDown, reported: Sequence[ReportedKernel], *, now: datetime) -> None:
    """Make the stored unknown kernels of an agent match its report. No query if the agent has none and had none."""
    unknown = [*answer.unknown, *answer.removals]
    if not unknown and not agent.unknown_kernels:
        return
    details = {(one.kernel_id, one.generation): one for one in reported}
    with transaction.atomic():
        rows = {(row.kernel_id, row.generation): row for row in UnknownKernel.objects.filter(agent=agent)}
        seen = {(one.kernel_id, one.generation): one for one in unknown}
        new = [_row(agent, one, details.get(key), now) for key, one in seen.items() if key not in rows]
        changed = [row for key, row in rows.items() if key in seen and _takes(row, seen[key], details.get(key))]
        gone = [row.pk for key, row in rows.items() if key not in seen]
        UnknownKernel.objects.bulk_create(new, ignore_conflicts=True)
        UnknownKernel.objects.bulk_update(changed, ["is_running", "is_kept", "manifest", "session_id"])
        UnknownKernel.objects.filter(pk__in=gone).delete()
        running = sum(one.running for one in unknown)
        Agent.objects.filter(pk=agent.pk).update(unknown_kernels=len(unknown), unknown_running=running)


def remove_unknown(actor: User, row: UnknownKernel, *, now: datetime) -> None:
    """Order the agent to remove this kernel with its home folder. Raises NotAllowed unless the actor is a superadmin,
    Conflict if the removal is ordered already."""
    if not actor.is_superadmin:
        raise NotAllowed("Only a superadmin decides about unknown kernels.")
    with transaction.atomic():
        if not UnknownKernel.objects.filter(pk=row.pk, removal_at=None).update(removal_at=now):
            raise Conflict("This kernel is already being removed.", code="removal-decided")
        details = {"agent": row.agent.name, "session": row.manifest.get("name", "")}
        audit(actor.pk, "unknown-kernel.remove", "kernel", [row.kernel_id], **details)


def _row(agent: Agent, one: KernelSighting, reported: ReportedKernel | None, now: datetime) -> UnknownKernel:
    row = UnknownKernel(
        agent=agent, kernel_id=one.kernel_id, generation=one.generation, is_running=one.running, found_at=now
    )
    _takes(row, one, reported)
    return row


def _takes(row: UnknownKernel, one: KernelSighting, reported: ReportedKernel | None) -> bool:
    """Copy what the agent reports into the row without saving it; returns whether the row changed.

    ``one``: whether the kernel runs. ``reported``: its manifest, and whether the agent refuses to remove it (None:
    these stay as they are).
    """
    before = (row.is_running, row.is_kept, row.manifest, row.session_id)
    row.is_running = one.running
    if reported is not None:
        manifest = read_manifest(reported.manifest)
        if (manifest.get("kernel"), manifest.get("generation")) != (str(row.kernel_id), row.generation):
            manifest = {}  # the manifest belongs to another kernel
        row.is_kept, row.manifest = reported.kept, manifest
        row.session_id = UUID(manifest["session"]) if manifest else None
    return before != (row.is_running, row.is_kept, row.manifest, row.session_id)
