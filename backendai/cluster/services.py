"""Agents joining, reporting in, falling silent; and the leases that keep each loop single."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from backendai.activity.services import audit
from backendai.cluster.models import Agent, JoinToken, PassLease, ResourceGroup
from backendai.core.errors import NotFound, UserError
from backendai.core.names import architecture_name
from backendai.core.slots import Slots
from backendai.wire.messages import JoinUp, SyncUp


def create_join_token(
    group: ResourceGroup, *, name_prefix: str = "", reusable: bool = False, expires_at: datetime | None = None
) -> str:
    """Return a join token's text for new agents of this group; only its hash is stored."""
    text = "join_" + secrets.token_urlsafe(24)
    JoinToken.objects.create(
        digest=_digest(text),
        resource_group=group,
        name_prefix=name_prefix,
        is_reusable=reusable,
        expires_at=expires_at,
    )
    return text


def join_agent(message: JoinUp) -> tuple[Agent, str]:
    """Return the agent's row and its own new token. A known name keeps its row (and its kernels) and gets a new token,
    provided that the join token is a reusable one made for such names."""
    now = timezone.now()
    with transaction.atomic():
        token = _usable_token(message, now)
        text = "node_" + secrets.token_urlsafe(32)
        agent = Agent.objects.filter(name=message.name).first()
        if agent and not (token.is_reusable and token.name_prefix):
            raise UserError(f"An agent named {message.name!r} exists already.", field="name", code="name-taken")
        action = "agent.return" if agent else "agent.join"
        if agent is None:
            agent = Agent(name=message.name, resource_group=token.resource_group)
        agent.token_digest, agent.gateway_url, agent.status = _digest(text), message.gateway_url, Agent.Status.LOST
        agent.save()
        audit(None, action, "agent", [agent.pk], name=agent.name, gateway_url=agent.gateway_url)
    return agent, text


def agent_of_token(text: str) -> Agent | None:
    """Return the agent that a node token belongs to, unless it was retired."""
    found: Agent | None = Agent.objects.registered().filter(token_digest=_digest(text)).first()
    return found


def record_sync(agent: Agent, message: SyncUp, *, now: datetime) -> bool:
    """Write what a node says about itself; returns whether it has come back from LOST or changed what it can take."""
    capacity = Slots.parse(message.capacity).to_json()
    status = Agent.Status.DRAINING if message.draining else Agent.Status.ALIVE
    news = agent.status != status or agent.capacity != capacity
    Agent.objects.filter(pk=agent.pk).update(
        status=status,
        lost_at=None,
        last_seen_at=now,
        backend=message.backend,
        architecture=architecture_name(message.architecture),
        version=message.version,
        boot_id=message.boot_id,
        gateway_url=message.gateway_url,
        capacity=capacity,
        devices=message.devices,
        notes=[note.model_dump() for note in message.notes],
    )
    agent.backend, agent.status = message.backend, status
    return news


def mark_lost(*, now: datetime, silent_for: timedelta) -> list[Agent]:
    """Move agents that have not been heard of to LOST and return them."""
    silent = list(Agent.objects.silent_since(now - silent_for))
    lost = []
    for agent in silent:
        still = Agent.objects.filter(pk=agent.pk, status=agent.status, last_seen_at=agent.last_seen_at)
        if still.update(status=Agent.Status.LOST, lost_at=now):
            lost.append(agent)
    return lost


def take_lease(
    name: str, owner: str, *, now: datetime, duration: timedelta, has_died: Callable[[str], bool] = lambda owner: False
) -> bool:
    """Take the lease unless somebody else holds it; True when it is ours now. An owner that ``has_died`` holds nothing:
    nobody need wait until its time is up."""
    # Released counts at once: whoever waited for it may hold an older ``now`` than the one who released it.
    free = Q(until__lte=now) | Q(owner__in=[owner, ""])
    if PassLease.objects.filter(free, pk=name).update(owner=owner, until=now + duration):
        return True
    try:
        with transaction.atomic():
            lease, created = PassLease.objects.get_or_create(
                pk=name, defaults={"owner": owner, "until": now + duration}
            )
    except IntegrityError:
        return False
    if created or not lease.owner or not has_died(lease.owner):
        return created
    return bool(PassLease.objects.filter(pk=name, owner=lease.owner).update(owner=owner, until=now + duration))


def release_lease(name: str, owner: str, *, now: datetime) -> None:
    """Give the lease back and note when the pass ended."""
    PassLease.objects.filter(pk=name, owner=owner).update(owner="", until=now, finished_at=now)


def last_pass_at(name: str) -> datetime | None:
    """Return when the named loop last finished a pass."""
    found: datetime | None = PassLease.objects.filter(pk=name).values_list("finished_at", flat=True).first()
    return found


def _usable_token(message: JoinUp, now: datetime) -> JoinToken:
    token = JoinToken.objects.select_related("resource_group").filter(digest=_digest(message.token)).first()
    if token is None or token.used_at or (token.expires_at and token.expires_at <= now):
        raise NotFound("The join token is unknown, used or expired.", code="join-token-refused")
    if not message.name.startswith(token.name_prefix):
        raise UserError(
            f"This join token is for agents whose names begin with {token.name_prefix!r}.",
            field="name",
            code="join-token-refused",
        )
    if not token.is_reusable and not JoinToken.objects.filter(pk=token.pk, used_at=None).update(used_at=now):
        raise NotFound("The join token has just been used.", code="join-token-refused")
    return token


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
