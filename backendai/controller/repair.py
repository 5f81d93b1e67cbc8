"""The repair pass: puts right what was lost, and gives up on what took too long. Every live state has a deadline."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F

from backendai.cluster.models import Agent
from backendai.cluster.services import mark_lost
from backendai.compute.models import ComputeSession, Kernel
from backendai.compute.services.ending import end_sessions
from backendai.compute.services.follow import follow
from backendai.compute.services.moves import Why
from backendai.compute.status import LIVE, STARTING, Outcome, Phase, Status

logger = logging.getLogger(__name__)

_SLACK = timedelta(seconds=60)  # the node gives up first, so that the two never disagree about one kernel


def repair(now: datetime) -> int:
    """Look at every state that can get stuck; returns how many rows were put right."""
    return _silent_agents(now) + _lost_for_good(now) + _overdue_starts(now) + _unfollowed(now)


def _silent_agents(now: datetime) -> int:
    lost = mark_lost(now=now, silent_for=settings.AGENT_LOST_AFTER)
    for agent in lost:
        logger.warning("agent %s is lost: last heard of at %s", agent.name, agent.last_seen_at)
    return len(lost)


def _lost_for_good(now: datetime) -> int:
    """End sessions whose agent stays silent beyond the group's grace. What may still run keeps its allocations."""
    gone = Agent.objects.filter(
        status=Agent.Status.LOST, lost_at__lt=now - F("resource_group__agent_lost_grace")
    ).values_list("pk", "name")
    count = 0
    for agent_id, name in list(gone):
        sessions = _sessions_on(agent_id)
        why = Why(Phase.REPAIR, "agent-lost", f"Node {name} has not answered for too long.", {"agent": name})
        ended = end_sessions(sessions, why, now=now)
        Kernel.objects.filter(agent=agent_id, status=Status.TERMINATING).update(is_unconfirmed=True)
        count += len(ended.terminating)
    return count


def _sessions_on(agent_id: UUID) -> list[UUID]:
    kernels = Kernel.objects.filter(agent=agent_id, status__in=STARTING | {Status.RUNNING})
    return list(kernels.values_list("session_id", flat=True).distinct())


def _overdue_starts(now: datetime) -> int:
    """End sessions whose node answers but does not get a kernel running in time."""
    starting = Kernel.objects.filter(agent__in=Agent.objects.answering())
    pulling = starting.filter(
        status=Status.PULLING, changed_at__lt=now - _SLACK - F("session__resource_group__pull_timeout")
    )
    others = starting.filter(
        status__in=STARTING - {Status.PULLING},
        changed_at__lt=now - _SLACK - F("session__resource_group__create_timeout"),
    )
    count = 0
    for kernel in [*pulling.select_related("agent"), *others.select_related("agent")]:
        waited = int((now - kernel.changed_at).total_seconds())
        message = f"Node {kernel.agent} left it {kernel.get_status_display()} for {waited} s."
        why = Why(Phase.REPAIR, "start-timeout", message, {"waited_seconds": waited}, outcome=Outcome.EXPIRED)
        count += len(end_sessions([kernel.session_id], why, now=now).terminating)
    return count


def _unfollowed(now: datetime) -> int:
    """Bring sessions to where their kernels are, should a process have died in between (it cannot: one transaction)."""
    sessions = list(
        ComputeSession.objects.filter(status__in=LIVE - {Status.PENDING})
        .exclude(kernels__status=F("status"))
        .values_list("pk", flat=True)[:1000]
    )
    with transaction.atomic():
        follow(sessions, now=now)
    return 0
