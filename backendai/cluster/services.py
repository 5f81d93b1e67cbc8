"""Agents joining, reporting in, falling silent; and the leases that keep each loop single."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import DataError, IntegrityError, transaction
from django.db.models import Case, F, Max, Q, Value, When
from django.utils import timezone

from backendai.accounts.prepared import Prepared
from backendai.activity.services import audit
from backendai.cluster.broker_access import end_broker_access
from backendai.cluster.models import Agent, Hearing, JoinToken, PassLease, ResourceGroup
from backendai.cluster.slot_types import ensure_slot_types
from backendai.core.errors import NotFound, UserError
from backendai.core.names import architecture_name
from backendai.core.slots import Slots
from backendai.wire.messages import JoinUp, SyncUp

_ENGINE_SILENT = "engine-unreachable"  # a node's note: its container engine does not answer


def create_join_token(
    group: ResourceGroup,
    *,
    name_prefix: str = "",
    reusable: bool = False,
    expires_at: datetime | None = None,
    agent: Agent | None = None,
    actor_id: UUID | None = None,
) -> str:
    """Return a join token's text for new agents of this group, or for that one ``agent`` to come back; only its hash is
    stored."""
    text = "join_" + secrets.token_urlsafe(24)
    with transaction.atomic():
        token = JoinToken.objects.create(
            digest=_digest(text),
            hint=text[:10],
            resource_group=group,
            agent=agent,
            name_prefix=name_prefix,
            is_reusable=reusable,
            expires_at=expires_at,
            created_by_id=actor_id,
        )
        details = {"resource_group": group.name, "name_prefix": name_prefix, "reusable": reusable}
        audit(actor_id, "join-token.create", "join-token", [token.pk], agent=agent.name if agent else "", **details)
    return text


def join_agent(message: JoinUp) -> tuple[Agent, str]:
    """Return the agent's row and its own new token. A known name keeps its row (and its kernels) and gets a new token,
    provided that the join token was made for this agent, or is a reusable one made for such names and nobody has turned
    the agent away."""
    now = timezone.now()
    with transaction.atomic():
        token = _usable_token(message, now)
        text = "node_" + secrets.token_urlsafe(32)
        agent = Agent.objects.filter(name=message.name).first()
        if agent and token.agent_id != agent.pk:
            _check_return(agent, token)
        action = "agent.return" if agent else "agent.join"
        if agent is None:
            agent = Agent(name=message.name, resource_group=token.resource_group)
        agent.token_digest, agent.gateway_url, agent.status = _digest(text), message.gateway_url, Agent.Status.LOST
        agent.lost_at = agent.lost_at or now  # it may die before its first sync, and must be given up then
        end_broker_access([agent])
        agent.revoked_at = None
        agent.save()
        audit(None, action, "agent", [agent.pk], name=agent.name, gateway_url=agent.gateway_url)
    return agent, text


def agent_of_token(text: str) -> Agent | None:
    """Return the agent that a node token belongs to, unless it was retired."""
    return _OF_DIGEST.first(_digest(text))


def agents_of_tokens(texts: Collection[str]) -> dict[str, Agent]:
    """Return the agents of these node tokens by token, in one query; unknown tokens and retired agents are left out."""
    digests = {_digest(text): text for text in texts}
    agents = Agent.objects.registered().filter(token_digest__in=list(digests)).order_by()
    return {digests[agent.token_digest]: agent for agent in agents}


def record_sync(agent: Agent, message: SyncUp, *, now: datetime) -> bool:
    """Write what a node says about itself; returns whether it has come back from LOST or changed what it can take.
    Raises UserError for a capacity that is none."""
    columns = _said(message, agent, now)
    news = _is_news(agent, columns)
    if columns.get("capacity", {}).keys() - agent.capacity.keys():
        ensure_slot_types(columns["capacity"])
    Agent.objects.registered().filter(pk=agent.pk).update(**_heard(now), **_never_undrained(columns))
    agent.backend, agent.status = columns["backend"], columns["status"]
    return news


def record_syncs(syncs: Sequence[tuple[Agent, SyncUp]], *, now: datetime) -> tuple[set[UUID], dict[UUID, str]]:
    """Write what many nodes say about themselves; returns those with news as ``record_sync`` means it, and what is
    wrong with the words of those that are refused.

    Nodes that say what they said before cost one statement together, the others one for each different thing said.
    """
    news, refused, slots = set(), {}, set[str]()
    same: defaultdict[str, list[UUID]] = defaultdict(list)
    other: defaultdict[str, list[UUID]] = defaultdict(list)
    for agent, message in syncs:
        try:
            columns = _said(message, agent, now)
        except UserError as error:
            refused[agent.pk] = str(error)
            continue
        if all(getattr(agent, name) == value for name, value in columns.items()):
            same[agent.status].append(agent.pk)
            continue
        if _is_news(agent, columns):
            news.add(agent.pk)
            slots |= columns.get("capacity", {}).keys() - agent.capacity.keys()
        other[json.dumps(columns)].append(agent.pk)
        agent.backend, agent.status = columns["backend"], columns["status"]
    if slots:
        ensure_slot_types(slots)
    for status, ids in same.items():
        # Found LOST meanwhile, a node is not the same any more: its next sync says so.
        Agent.objects.filter(pk__in=ids, status=status).update(lost_at=None, last_seen_at=now)
    for text, ids in other.items():
        try:
            with transaction.atomic():
                columns = _never_undrained(json.loads(text))
                Agent.objects.registered().filter(pk__in=ids).update(**_heard(now), **columns)
        except DataError as error:
            refused |= dict.fromkeys(ids, str(error)[:200])
    return news - refused.keys(), refused


def hold_back(agent_ids: Collection[UUID]) -> None:
    """Let nodes that have just come back take nothing new as long as something runs there that must go: what it holds
    is free by the books. The next sync asks again."""
    if agent_ids:
        Agent.objects.filter(pk__in=agent_ids, status=Agent.Status.ALIVE).update(status=Agent.Status.DRAINING)


def mark_lost(*, now: datetime, silent_for: timedelta) -> list[Agent]:
    """Move agents that have not been heard of to LOST and return them. Those that are LOST without a time get one."""
    Agent.objects.filter(status=Agent.Status.LOST, lost_at=None).update(lost_at=now)
    silent = list(Agent.objects.silent_since(now - silent_for))
    lost = []
    for agent in silent:
        still = Agent.objects.filter(pk=agent.pk, status=agent.status, last_seen_at=agent.last_seen_at)
        if still.update(status=Agent.Status.LOST, lost_at=now):
            lost.append(agent)
    return lost


def last_heard_at() -> datetime | None:
    """Return when any node that may come back was last heard of; None when there is no such node."""
    newest: datetime | None = Agent.objects.registered().aggregate(newest=Max("last_seen_at"))["newest"]
    return newest


def note_hearing(*, now: datetime, can_hear: bool, longest_gap: timedelta) -> None:
    """Note whether nodes can be heard now; after a gap of more than ``longest_gap`` between two notes nobody knows
    whether they could, and what is heard counts from ``now``."""
    row, _ = Hearing.objects.get_or_create(pk=1, defaults={"since": now, "noted_at": now})
    if not can_hear or now - row.noted_at > longest_gap:
        row.since = now
    Hearing.objects.filter(pk=row.pk).update(since=row.since, noted_at=now)


def hearing_since(now: datetime) -> datetime:
    """Return since when nodes can be heard without a break; ``now`` when nobody has listened yet."""
    since: datetime | None = Hearing.objects.values_list("since", flat=True).first()
    return since or now


def may_count_tries(group_id: int, *, now: datetime) -> bool:
    """Return whether sessions that found no room in this pass have used up a try, and note that they have.

    Passes come with the clock and with every launch, end and cancellation besides. Tries go by the clock alone: what
    other people click must neither use up a session's tries nor take its strict place.
    """
    since = now - settings.PASS_INTERVAL * 0.75  # beat is not exact
    due = Q(tries_counted_at=None) | Q(tries_counted_at__lte=since) | Q(tries_counted_at__gt=now)
    return bool(ResourceGroup.objects.filter(due, pk=group_id).update(tries_counted_at=now))


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


def _heard(now: datetime) -> dict[str, Any]:
    """Return what changes when a node is heard, by column."""
    returned = Case(When(status=Agent.Status.LOST, then=now), default=F("returned_at"))
    return {"lost_at": None, "last_seen_at": now, "returned_at": returned}


def _never_undrained(columns: dict[str, Any]) -> dict[str, Any]:
    """Return what is written of these columns: a drain that began while the node spoke stands."""
    drained = When(drain_started_at__isnull=False, then=Value(str(Agent.Status.DRAINING)))
    return columns | {"status": Case(drained, default=Value(columns["status"]))}


def _said(message: SyncUp, agent: Agent, now: datetime) -> dict[str, Any]:
    """Return what a sync says about its node, by column. What it has is not known while its engine does not answer:
    the portal keeps what it knew."""
    said: dict[str, Any] = {
        "status": str(Agent.Status.DRAINING if message.draining or agent.is_drained else Agent.Status.ALIVE),
        "backend": message.backend,
        "architecture": architecture_name(message.architecture),
        "version": message.version,
        "boot_id": message.boot_id,
        "gateway_url": message.gateway_url,
        "capacity": Slots.parse(message.capacity).to_json(),
        "devices": message.devices,
        "notes": [note.model_dump() for note in message.notes],
        "engine": message.engine,
        "os_kernel": message.os_kernel,
        "low_disk": message.low_disk,
    }
    if message.live is not None:
        said["live"] = {"at": now.isoformat(), **message.live.model_dump(mode="json")}
    if any(note.code == _ENGINE_SILENT for note in message.notes):
        del said["capacity"], said["devices"]
    return said


def _is_news(agent: Agent, columns: dict[str, Any]) -> bool:
    offers = agent.status, agent.low_disk, agent.capacity
    return offers != (columns["status"], columns["low_disk"], columns.get("capacity", agent.capacity))


def _check_return(agent: Agent, token: JoinToken) -> None:
    if agent.needs_own_token:
        text = f"Agent {agent.name} was turned away: an administrator must make a join token for it."
        raise UserError(text, field="name", code="agent-turned-away")
    if not (token.is_reusable and token.name_prefix):
        raise UserError(f"An agent named {agent.name!r} exists already.", field="name", code="name-taken")


def _usable_token(message: JoinUp, now: datetime) -> JoinToken:
    token = JoinToken.objects.select_related("resource_group", "agent").filter(digest=_digest(message.token)).first()
    if token is None or token.used_at or (token.expires_at and token.expires_at <= now):
        raise NotFound("The join token is unknown, used or expired.", code="join-token-refused")
    if token.agent and token.agent.name != message.name:
        text = f"This join token is for agent {token.agent.name} alone."
        raise UserError(text, field="name", code="join-token-refused")
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


_OF_DIGEST = Prepared(lambda digest: Agent.objects.registered().filter(token_digest=digest).order_by()[:1])
