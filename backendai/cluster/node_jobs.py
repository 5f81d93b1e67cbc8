"""Jobs that agents do beside kernels: which kinds there are, what each agent should do now, what agents say.

A room adds a kind by a class in its module ``node_jobs`` that it registers; Django imports these modules at the start.
A row of a job is over when its agent says so, when somebody cancels it, when the agent is lost, or its time is up.
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

from backendai.activity.message_field import MessageField
from backendai.activity.models import BackgroundJob
from backendai.cluster.models import Agent
from backendai.core.errors import NotFound
from backendai.wire.broker import hint_on_commit
from backendai.wire.node_jobs import CAPABILITY, NodeJobOrder, NodeJobReport, NodeJobSpec
from backendai.wire.queues import node_queue

_SILENT_AFTER_CANCEL = timedelta(seconds=30)
_UUID_DIGITS = 32


class NodeJobRow(models.Model):
    """What all rows of jobs have; each kind adds ``agent``, its background ``job``, ``status`` and what it is about."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    message = MessageField(blank=True)
    heard_at = models.DateTimeField(null=True, blank=True, help_text="When its agent last gave a word about it.")

    class Meta:
        abstract = True


class NodeJobKind(Protocol):
    """One kind of job, as the portal sees it. ``name`` is also what the agent's handler is called by."""

    name: str

    def wanted(self) -> QuerySet[Any]:
        """Return the rows that agents should work on now; each has an ``agent``, and its key is the job's id."""

    def spec(self, agent: Agent, job_id: UUID) -> NodeJobSpec:
        """Return what this agent should do. Raises NotFound when it should not (any more)."""

    def heard(self, agent: Agent, report: NodeJobReport, *, now: datetime) -> bool:
        """Write what an agent says about a job; returns whether it is still wanted of this agent."""

    def follow(self, now: datetime) -> int:
        """End jobs of which no agent will speak any more; returns how many were ended."""


_kinds: dict[str, NodeJobKind] = {}


def register(kind: NodeJobKind) -> None:
    """Let agents hear of this kind."""
    _kinds[kind.name] = kind


def unregister(name: str) -> None:
    """Let no agent hear of this kind any more."""
    del _kinds[name]


def kind_named(name: str) -> NodeJobKind:
    """Return the kind of this name. Raises NotFound."""
    if name not in _kinds:
        raise NotFound("This portal does not support jobs of the kind {name}.", name=name[:64])
    return _kinds[name]


def orders_of(agent_ids: Collection[UUID]) -> dict[UUID, list[NodeJobOrder]]:
    """Return what these agents should do, by agent; one query for all kinds."""
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
    """Return the id of a job from the key of its row, which is a UUID or a small number."""
    text = str(key)
    return UUID(int=int(text)) if len(text) < _UUID_DIGITS else UUID(text)


def hint_job(kind: str, job_id: UUID, agent: Agent) -> None:
    """Tell the agent on commit that this job waits for it; its next sync says so too."""
    hint_on_commit("node.begin_job", kind, str(job_id), 1, queue=node_queue(agent.name))


def follow_jobs(now: datetime) -> int:
    """End the jobs of all kinds of which no agent will speak any more; returns how many were ended."""
    return sum(kind.follow(now) for kind in list(_kinds.values()))


def is_outdated(agent: Agent, kind: str) -> bool:
    """Return whether the agent has said what it can do, and jobs of this kind are not among it."""
    return agent.capabilities is not None and f"{CAPABILITY}{kind}" not in agent.capabilities


class Ending(Enum):
    """Why a job ends without a word of its agent."""

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
    """Return why the job ends now although its agent has not said so; None while it may go on."""
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
    """Return the sentence about an agent of a version that does not know a kind of job."""
    return f"Agent {agent.name} runs an earlier version of the platform. Update it, and try again."
