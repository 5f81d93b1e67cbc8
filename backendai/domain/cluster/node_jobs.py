"""Jobs of agents besides kernels: the kinds, the orders for each agent, and the agents' reports.

An app adds a kind by registering a class in its module ``node_jobs``, which Django imports at the start. A job's row
ends by the agent's report, a cancellation, the loss of the agent, or its time limit.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, Protocol
from uuid import UUID

from django.db import models
from django.db.models import CharField, QuerySet, Value
from django.db.models.functions import Cast

from backendai.base.core.errors import NotFound
from backendai.base.wire.broker.hints import hint_on_commit
from backendai.base.wire.broker.queues import node_queue
from backendai.base.wire.node_jobs import CAPABILITY, NodeJobOrder, NodeJobReport, NodeJobSpec
from backendai.domain.activity.message_field import MessageField
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.cluster.models import Agent

_SILENT_AFTER_CANCEL = timedelta(seconds=30)
_UUID_DIGITS = 32


class NodeJobRow(models.Model):
    """The common columns of job rows.

    Each kind adds ``agent``, its background ``job``, ``status`` and its own columns.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    message = MessageField(blank=True)
    heard_at = models.DateTimeField(null=True, blank=True, help_text="When its agent last gave a word about it.")

    class Meta:
        abstract = True


class NodeJobKind(Protocol):
    """One kind of job of agents. ``name`` is also the name of the agent's handler."""

    name: str

    def wanted(self) -> QuerySet[Any]:
        """Return the rows that agents should work on now. Each has an ``agent``, and its key is the job's id."""

    def spec(self, agent: Agent, job_id: UUID) -> NodeJobSpec:
        """Return the order of this job for the agent.

        Raises NotFound if the job is not (or no longer) for this agent.
        """

    def heard(self, agent: Agent, report: NodeJobReport, *, now: datetime) -> bool:
        """Save an agent's report on a job; returns whether the job is still wanted."""

    def follow(self, now: datetime) -> int:
        """End jobs on which no agent will report again; returns how many."""


_kinds: dict[str, NodeJobKind] = {}


def register(kind: NodeJobKind) -> None:
    """Offer jobs of this kind to agents."""
    _kinds[kind.name] = kind


def unregister(name: str) -> None:
    """Stop offering jobs of this kind."""
    del _kinds[name]


def kind_named(name: str) -> NodeJobKind:
    """Return the kind of this name. Raises NotFound."""
    if name not in _kinds:
        raise NotFound("This portal does not support jobs of the kind {name}.", name=name[:64])
    return _kinds[name]


def orders_of(agent_ids: Collection[UUID]) -> dict[UUID, list[NodeJobOrder]]:
    """Return the orders for these agents, by agent; one query for all kinds."""
    parts = [
        kind.wanted()
        .filter(agent__in=agent_ids)
        .order_by()
        .values_list("agent_id", Value(kind.name, output_field=CharField()), Cast("pk", CharField()))
        for kind in _kinds.values()
    ]
    orders = defaultdict[UUID, list[NodeJobOrder]](list)
    for agent_id, kind, key in parts[0].union(*parts[1:], all=True) if parts else ():
        orders[agent_id].append(NodeJobOrder(kind=kind, job_id=job_id_of(key)))
    return orders


def job_id_of(key: Any) -> UUID:
    """Return the id of a job from its row's key. A key is a UUID or a small number."""
    text = str(key)
    return UUID(int=int(text)) if len(text) < _UUID_DIGITS else UUID(text)


def hint_job(kind: str, job_id: UUID, agent: Agent) -> None:
    """Send the agent a hint about this job on commit. Its next sync has the job too."""
    hint_on_commit("node.begin_job", kind, str(job_id), 1, queue=node_queue(agent.name))


def follow_jobs(now: datetime) -> int:
    """End the jobs of all kinds on which no agent will report again; returns how many."""
    return sum(kind.follow(now) for kind in list(_kinds.values()))


def is_outdated(agent: Agent, kind: str) -> bool:
    """Return whether the agent reports its capabilities, and this kind of job is not among them."""
    return agent.capabilities is not None and f"{CAPABILITY}{kind}" not in agent.capabilities


class Ending(Enum):
    """The reasons why a job ends without its agent's report."""

    JOB_OVER = auto()
    CANCELLED = auto()
    AGENT_LOST = auto()
    AGENT_OUTDATED = auto()
    LATE = auto()


def ending_of(
    job: BackgroundJob | None,
    agent: Agent | None,
    kind: str,
    *,
    is_waiting: bool,
    heard_at: datetime | None,
    now: datetime,
) -> Ending | None:
    """Return why the job ends now without its agent's report; None while it may continue."""
    if job is None or not job.is_running:
        return Ending.JOB_OVER
    if job.cancel_requested_at:
        is_silent = heard_at is None or heard_at <= now - _SILENT_AFTER_CANCEL
        return Ending.CANCELLED if is_waiting or is_silent else None
    if agent is None or agent.status not in (Agent.Status.ALIVE, Agent.Status.DRAINING):
        return Ending.AGENT_LOST
    if is_outdated(agent, kind):
        return Ending.AGENT_OUTDATED
    return Ending.LATE if job.deadline_at and job.deadline_at <= now else None


def update_agent(agent: Agent) -> str:
    """Return the error for an agent whose version does not support a kind of job."""
    return f"Agent {agent.name} runs an earlier version of the platform. Update it, and try again."
