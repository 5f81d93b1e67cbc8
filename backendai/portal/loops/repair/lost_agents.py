"""Marks silent agents as lost and ends their sessions. Silence counts only while agents can reach the portal
(``reachability``)."""

from __future__ import annotations

import logging
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db.models import F, Q

from backendai.base.core.messages import Message
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.services import mark_lost, reachable_since
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.reasons import STOPPED
from backendai.domain.compute.services.life.ending import end_each
from backendai.domain.compute.services.life.losses import MOST_AT_ONCE, RUN_AGAIN, end_unconfirmed
from backendai.domain.compute.services.status.moves import StatusCause
from backendai.domain.compute.status import PLACED, STARTING, Outcome, Phase, Status

logger = logging.getLogger(__name__)
_ALIVE = STARTING | {Status.RUNNING, Status.STOPPING}


def mark_silent_agents(now: datetime) -> int:
    """Mark agents without a recent sync as LOST; returns how many. No agent is marked until agents have been able to
    reach the portal for ``AGENT_LOST_AFTER``."""
    if now - reachable_since(now) < settings.AGENT_LOST_AFTER:
        return 0
    lost = mark_lost(now=now, silent_for=settings.AGENT_LOST_AFTER)
    for agent in lost:
        logger.warning("agent %s is lost: last heard of at %s", agent.name, agent.last_seen_at)
    return len(lost)


def end_lost_sessions(now: datetime) -> int:
    """End sessions whose agent has been lost longer than the group allows; returns how many ended or restarted. At most
    ``MOST_AT_ONCE`` kernels of each kind per call.

    Kernels that may still run keep their slots. Batch sessions with a retry left start again on another agent, and
    sessions whose homes are stored are stopped; the old kernel is removed when its agent returns.
    """
    gone = Agent.objects.filter(
        status=Agent.Status.LOST,
        lost_at__lt=now - F("resource_group__agent_lost_grace"),
        resource_group__agent_lost_grace__lt=now - reachable_since(now),
    )
    if not gone.exists():  # the usual case
        return 0
    kernels = Kernel.objects.filter(agent__in=gone, status__in=PLACED, session__status__in=_ALIVE).order_by("pk")
    again = end_unconfirmed(kernels.filter(RUN_AGAIN | Q(status_reason=STOPPED)), "agent-lost", _again, now=now)
    whys: dict[UUID, StatusCause] = {}
    for session_id, name in kernels.values_list("session_id", "agent__name")[:MOST_AT_ONCE]:
        message = Message(
            "Agent {name} has been unreachable for too long. The end cannot be confirmed, so its resources "
            "stay allocated until the agent is back or an administrator forces the termination.",
            name=name,
        )
        why = StatusCause(Phase.REPAIR, "agent-lost", message, {"agent": name}, outcome=Outcome.EXPIRED)
        whys.setdefault(session_id, why)
    ended = end_each(whys, only_from=_ALIVE, now=now).terminating
    silent = Kernel.objects.filter(session__in=ended, agent__in=gone, status=Status.TERMINATING)
    silent.update(is_unconfirmed=True)
    return len(ended) + len(again)


def _again(agent: str) -> str:
    return Message("Agent {agent} has been unreachable for too long.", agent=agent)
