"""Exports a list of sessions as a CSV file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.db.models import Prefetch, QuerySet
from django.http import StreamingHttpResponse

from backendai.base.core.csv_cells import csv_lines
from backendai.domain.accounts.models import User
from backendai.domain.compute.models.sessions import ComputeSession, Kernel
from backendai.portal.web.session_list.columns import may_see_agents

MOST_EXPORTED = 100_000
_AT_ONCE = 1_000
_HEADINGS = (
    "id", "name", "type", "status", "status_reason", "status_message", "result", "owner", "project", "domain",
    "access_key", "resource_group", "image", "cluster_mode", "cluster_size", "priority", "slots_per_kernel",
    "created_at", "started_at", "ended_at",
)  # fmt: skip
_COLUMNS = (
    "name", "session_type", "status", "status_reason", "status_message", "result", "access_key", "cluster_mode",
    "cluster_size", "priority", "slots", "created_at", "started_at", "ended_at", "owner__email", "project__name",
    "project__domain__name", "resource_group__name", "image__name",
)  # fmt: skip


def sessions_file(rows: QuerySet[Any], user: User) -> StreamingHttpResponse:
    """Return at most ``MOST_EXPORTED`` of these sessions as a streamed CSV file.

    Its headings are the names of REST, in every language.
    """
    with_agents = may_see_agents(user)
    answer = StreamingHttpResponse(csv_lines(_lines(rows, with_agents)), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="sessions.csv"'
    return answer


def _lines(rows: QuerySet[Any], with_agents: bool) -> Iterator[list[Any]]:
    yield [*_HEADINGS, *(["agents"] if with_agents else [])]
    pointed = rows.select_related("owner", "project__domain", "resource_group", "image").only(*_COLUMNS)
    if with_agents:
        kernels = Kernel.objects.select_related("agent").only("session_id", "agent__name")
        pointed = pointed.prefetch_related(Prefetch("kernels", kernels))
    for session in pointed[:MOST_EXPORTED].iterator(chunk_size=_AT_ONCE):
        line = _line(session)
        if with_agents:
            names = [kernel.agent.name for kernel in session.kernels.all() if kernel.agent]
            line.append(", ".join(dict.fromkeys(names)))
        yield line


def _line(session: ComputeSession) -> list[Any]:
    project = session.project
    return [
        session.pk, session.name, session.session_type, session.status, session.status_reason, session.status_message,
        session.result, session.owner.email, project.name, project.domain.name, session.access_key,
        session.resource_group.name, session.image.name, session.cluster_mode, session.cluster_size, session.priority,
        json.dumps(session.slots, sort_keys=True), _moment(session.created_at), _moment(session.started_at),
        _moment(session.ended_at),
    ]  # fmt: skip


def _moment(value: datetime | None) -> str:
    return value.isoformat() if value else ""
