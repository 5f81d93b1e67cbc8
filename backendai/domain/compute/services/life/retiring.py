"""Retires agents that have been removed permanently."""

from __future__ import annotations

import secrets
from datetime import datetime

from django.db import transaction

from backendai.base.core.errors import Conflict
from backendai.base.core.messages import Message
from backendai.base.core.slots import kernels_in_words
from backendai.domain.accounts.models import User
from backendai.domain.activity.services import audit
from backendai.domain.cluster.broker_access import end_broker_access
from backendai.domain.cluster.models import Agent, JoinToken
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.services.life.losses import end_unconfirmed
from backendai.domain.compute.services.placing.place import lock_group
from backendai.domain.compute.status import PLACED

GONE = "agent-terminated"


def retire_agent(actor: User, agent: Agent, *, now: datetime) -> int:
    """Retire an agent; returns how many sessions lost kernels. Its requests are refused from now on, and its slots are
    free.

    Its sessions end with ``agent-terminated``; batch sessions with a retry become pending again. The agent's row is
    kept for the history. Raises Conflict if the agent is retired already, or is reachable and runs kernels.
    """
    if agent.status == Agent.Status.TERMINATED:
        raise Conflict("Agent {agent} was already removed permanently.", agent=agent.name, code="agent-terminated")
    with transaction.atomic():
        lock_group(agent.resource_group_id)
        placed = Kernel.objects.filter(agent=agent, status__in=PLACED).order_by("pk")
        number = placed.count()
        if number and Agent.objects.answering().filter(pk=agent.pk).exists():
            raise Conflict(
                "Agent {agent} is reachable and runs {running}: drain it first.",
                agent=agent.name,
                running=kernels_in_words(number),
                code="agent-in-use",
                kernels=number,
            )
        sessions = end_unconfirmed(placed, GONE, _sentence, now=now) if number else set()
        Agent.objects.filter(pk=agent.pk).update(
            status=Agent.Status.TERMINATED,
            token_digest=f"gone-{secrets.token_hex(24)}",
            drain_started_at=None,
            drain_ends_at=None,
            drain_kernels=0,
        )
        end_broker_access([agent])
        JoinToken.objects.filter(agent=agent).delete()
        audit(actor.pk, "agent.terminate", "agent", [agent.pk], name=agent.name, kernels=number)
    agent.refresh_from_db()
    return len(sessions)


def _sentence(agent: str) -> str:
    return Message("Agent {agent} was removed permanently by an administrator; what ran there is lost.", agent=agent)
