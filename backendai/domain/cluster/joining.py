"""Creates join tokens, and adds the machines that use them as agents."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone

from backendai.base.core.errors import NotFound, UserError
from backendai.base.core.messages import Message
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.messages import JoinUp
from backendai.domain.activity.services import COMMAND_LINE, audit
from backendai.domain.cluster.broker_access import end_broker_access
from backendai.domain.cluster.capabilities import capabilities_of
from backendai.domain.cluster.models import Agent, JoinToken, ResourceGroup

_STILL_THERE = timedelta(minutes=1)


def create_join_token(
    group: ResourceGroup,
    *,
    name_prefix: str = "",
    reusable: bool = False,
    expires_at: datetime | None = None,
    agent: Agent | None = None,
    actor_id: UUID | None = None,
) -> str:
    """Create a join token and return its text; only its hash is stored.

    It is for new agents of this group, or only for the return of ``agent``.
    """
    text = "join_" + secrets.token_urlsafe(24)
    with transaction.atomic():
        token = JoinToken.objects.create(
            digest=digest_of(text),
            hint=text[:10],
            resource_group=group,
            agent=agent,
            name_prefix=name_prefix,
            is_reusable=reusable,
            expires_at=expires_at,
            created_by_id=actor_id,
        )
        details: dict[str, Any] = {"resource_group": group.name, "name_prefix": name_prefix, "reusable": reusable}
        details |= {"by": COMMAND_LINE} if actor_id is None else {}
        audit(actor_id, "join-token.create", "join-token", [token.pk], agent=agent.name if agent else "", **details)
    return text


def join_agent(message: JoinUp) -> tuple[Agent, str]:
    """Add a machine as an agent; return its row and its own token.

    Raises NotFound and UserError. A known name keeps its row and kernels if the join token was made for this agent. A
    reusable token for such names in the same group suffices if the agent was not revoked, and had no contact within the
    last minute.
    """
    try:
        return _join(message, timezone.now())
    except IntegrityError as error:
        text = Message("Another machine has just joined as {message}.", message=repr(message.name))
        raise UserError(text, field="name", code="name-taken") from error


def _join(message: JoinUp, now: datetime) -> tuple[Agent, str]:
    with transaction.atomic():
        token = _usable_token(message, now)
        text = "node_" + secrets.token_urlsafe(32)
        agent = Agent.objects.filter(name=message.name).first()
        if agent and token.agent_id != agent.pk:
            _check_return(agent, token, now)
        action = "agent.return" if agent else "agent.join"
        if agent is None:
            agent = Agent(name=message.name, resource_group=token.resource_group)
        agent.token_digest, agent.gateway_url, agent.status = digest_of(text), message.gateway_url, Agent.Status.LOST
        agent.lost_at = agent.lost_at or now  # it may die before its first sync, and must be given up then
        end_broker_access([agent])
        agent.revoked_at = None
        agent.save()
        audit(None, action, "agent", [agent.pk], name=agent.name, gateway_url=agent.gateway_url)
    return agent, text


def _check_return(agent: Agent, token: JoinToken, now: datetime) -> None:
    if agent.needs_own_token:
        text = Message(
            "Access of agent {agent} was revoked: an administrator must create a join token for it.", agent=agent.name
        )
        raise UserError(text, field="name", code="agent-turned-away")
    if not (token.is_reusable and token.name_prefix):
        raise UserError(
            "An agent named {agent} exists already.", agent=repr(agent.name), field="name", code="name-taken"
        )
    if token.resource_group_id != agent.resource_group_id:
        text = Message(
            "Agent {agent} belongs to another resource group. Create a join token for this agent.", agent=agent.name
        )
        raise UserError(text, field="name", code="name-taken")
    # Simulated nodes hold nothing of anybody's, and come back at once when their process is started again.
    is_real = Capability.SIMULATED not in capabilities_of(agent)
    if is_real and agent.last_seen_at is not None and now - agent.last_seen_at < _STILL_THERE:
        text = Message(
            "Agent {agent} was seen within the last minute. Stop it and wait, or create a join token for it.",
            agent=agent.name,
        )
        raise UserError(text, field="name", code="agent-is-there")


def _usable_token(message: JoinUp, now: datetime) -> JoinToken:
    token = JoinToken.objects.select_related("resource_group", "agent").filter(digest=digest_of(message.token)).first()
    if token is None or token.used_at or (token.expires_at and token.expires_at <= now):
        raise NotFound("The join token is unknown, used or expired.", code="join-token-refused")
    if token.agent and token.agent.name != message.name:
        text = Message("This join token is for agent {agent} only.", agent=token.agent.name)
        raise UserError(text, field="name", code="join-token-refused")
    if not message.name.startswith(token.name_prefix):
        raise UserError(
            "This join token is for agents whose names begin with {name_prefix}.",
            name_prefix=repr(token.name_prefix),
            field="name",
            code="join-token-refused",
        )
    if not token.is_reusable and not JoinToken.objects.filter(pk=token.pk, used_at=None).update(used_at=now):
        raise NotFound("The join token has just been used.", code="join-token-refused")
    return token


def digest_of(text: str) -> str:
    """Return the hash by which a token is stored. Tokens are long and random, so one SHA-256 is enough."""
    return hashlib.sha256(text.encode()).hexdigest()
