"""Saves the reports of agents on storage hosts: whether their kernels can mount folders there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from backendai.base.wire.mounts import HostReport
from backendai.domain.cluster.models import Agent
from backendai.domain.storage.models import HostOnAgent, StorageHost

Reports = Sequence[HostReport]
_SAID = ("fault", "can_read_only", "can_sub_path")
_COARSE = 2**30  # free bytes are written when they differ by so much


def record_host_reports(heard: Sequence[tuple[Agent, Reports]], *, now: datetime) -> list[Agent]:
    """Save the agents' reports; return the agents whose mountable hosts have changed.

    Unchanged reports cost nothing, all others together a fixed number of queries.
    """
    changed = [(agent, reports) for agent, reports in heard if _digest(reports) != agent.storage_digest]
    if not changed:
        return []
    hosts = {host.name: host.pk for host in StorageHost.objects.all()}
    with transaction.atomic():
        kept = HostOnAgent.objects.filter(agent__in=[agent.pk for agent, _ in changed])
        before = {(row.agent_id, row.host_id): row for row in kept.select_for_update()}
        rows = [
            _row(agent, hosts[name], report, now)
            for agent, reports in changed
            for name, report in {one.name: one for one in reports}.items()
            if name in hosts
        ]
        after = {(row.agent_id, row.host_id): row for row in rows}
        HostOnAgent.objects.filter(pk__in=[row.pk for key, row in before.items() if key not in after]).delete()
        HostOnAgent.objects.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["host", "agent"],
            update_fields=[*_SAID, "free_bytes", "reported_at"],
        )
        _note_digests(changed)
    return [agent for agent, _ in changed if _offers(before, agent.pk) != _offers(after, agent.pk)]


def _note_digests(changed: Sequence[tuple[Agent, Reports]]) -> None:
    alike: dict[str, list[UUID]] = {}
    for agent, reports in changed:
        agent.storage_digest = _digest(reports)
        alike.setdefault(agent.storage_digest, []).append(agent.pk)
    for digest, ids in alike.items():
        Agent.objects.filter(pk__in=ids).update(storage_digest=digest)


def _digest(reports: Reports) -> str:
    if not reports:
        return ""
    said = [[*one.model_dump(exclude={"free_bytes"}).values(), (one.free_bytes or 0) // _COARSE] for one in reports]
    return hashlib.sha256(json.dumps(sorted(said)).encode()).hexdigest()


def _row(agent: Agent, host_id: UUID, report: HostReport, now: datetime) -> HostOnAgent:
    return HostOnAgent(
        agent=agent,
        host_id=host_id,
        fault=report.fault,
        can_read_only=report.read_only,
        can_sub_path=report.sub_paths,
        free_bytes=report.free_bytes,
        reported_at=now,
    )


def _offers(rows: dict[tuple[UUID, UUID], HostOnAgent], agent_id: UUID) -> set[tuple[Any, ...]]:
    return {(host, *(getattr(row, name) for name in _SAID)) for (agent, host), row in rows.items() if agent == agent_id}
