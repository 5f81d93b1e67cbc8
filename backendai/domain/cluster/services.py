"""Agents joining, reporting in, falling silent; and the leases that keep each loop single."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import DataError, IntegrityError, transaction
from django.db.models import Case, F, Max, Q, QuerySet, Value, When

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.names import architecture_name
from backendai.base.core.slots import Slots
from backendai.base.wire.messages import PROTOCOL, Note, SyncUp
from backendai.domain.cluster.capabilities import capabilities_of, reported
from backendai.domain.cluster.joining import digest_of
from backendai.domain.cluster.models import Agent, PassLease, Reachability, ResourceGroup
from backendai.domain.cluster.slot_types import ensure_slot_types, is_usual

_OTHER_MACHINE_WAITS = timedelta(seconds=15)  # three usual syncs
_REFUSED = "report-refused"
_ENGINE_SILENT = "engine-unreachable"  # a node's note: its container engine does not answer


def agent_of_token(text: str) -> Agent | None:
    """Return the agent that a node token belongs to, unless it was retired."""
    return next(iter(_of_digest(digest_of(text))), None)


def agents_of_tokens(texts: Collection[str]) -> dict[str, Agent]:
    """Return the agents of these node tokens by token, in one query; unknown tokens and retired agents are left out."""
    digests = {digest_of(text): text for text in texts}
    agents = Agent.objects.registered().filter(token_digest__in=list(digests)).order_by()
    return {digests[agent.token_digest]: agent for agent in agents}


def record_sync(agent: Agent, message: SyncUp, *, now: datetime) -> bool:
    """Write what a node says about itself; returns whether it has come back from LOST or changed what it can take.
    Raises UserError for a capacity that is none."""
    columns = _said(message, agent, now)
    news = _is_news(agent, columns)
    if offers := _undescribed(columns, agent):
        ensure_slot_types(offers)
    Agent.objects.registered().filter(pk=agent.pk).update(**_heard(now), **_never_undrained(columns))
    _note_said(agent, columns)
    return news


def record_syncs(syncs: Sequence[tuple[Agent, SyncUp]], *, now: datetime) -> tuple[set[UUID], dict[UUID, str]]:
    """Write what many nodes say about themselves; returns those with news as ``record_sync`` means it, and what is
    wrong with the words of those that are refused.

    Nodes that say what they said before cost one statement together, the others one for each different thing said.
    """
    news, refused, slots = set(), {}, dict[str, UUID]()
    same: defaultdict[str, list[UUID]] = defaultdict(list)
    other: defaultdict[str, list[UUID]] = defaultdict(list)
    for agent, message in syncs:
        try:
            columns = _said(message, agent, now)
        except UserError as error:
            refused[agent.pk] = str(error)
            continue
        slots |= _undescribed(columns, agent)
        if all(getattr(agent, name) == value for name, value in columns.items()):
            same[agent.status].append(agent.pk)
            continue
        if _is_news(agent, columns):
            news.add(agent.pk)
        other[json.dumps(columns)].append(agent.pk)
        _note_said(agent, columns)
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


def note_refused(refused: Mapping[UUID, str], *, now: datetime) -> None:
    """Write that these agents were heard though nothing that they say of themselves can be used: they are there, so
    their sessions go on, and take nothing new until their words make sense again."""
    for agent_id, problem in refused.items():
        note = {
            "code": _REFUSED,
            "message": Message("The portal cannot read what this agent reports: {problem}", problem=problem),
            "fix": Message("Run the same version on the portal and on the agent: upgrade the portal first."),
        }
        Agent.objects.registered().filter(pk=agent_id).update(
            **_heard(now), status=str(Agent.Status.DRAINING), notes=[note]
        )


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


def record_reachability(*, now: datetime, is_reachable: bool, longest_gap: timedelta) -> None:
    """Record whether agents can reach the portal now. After a gap of more than ``longest_gap`` between records, or a
    clock that was set back, it is unknown whether they could, and their silence counts from ``now``."""
    row, _ = Reachability.objects.get_or_create(pk=1, defaults={"since": now, "noted_at": now})
    if row.noted_at > now:
        _count_from(now)
    if not is_reachable or not timedelta(0) <= now - row.noted_at <= longest_gap:
        row.since = now
    Reachability.objects.filter(pk=row.pk).update(since=row.since, noted_at=now)


def reachable_since(now: datetime) -> datetime:
    """Return since when agents could reach the portal without a break; ``now`` when nothing is recorded yet."""
    since: datetime | None = Reachability.objects.values_list("since", flat=True).first()
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
    # Released counts at once: a waiting process may hold an older ``now`` than the one who released it. A lease
    # that runs longer than one can was taken before the clock was set back; twice, as clocks of machines differ.
    free = Q(until__lte=now) | Q(until__gt=now + 2 * duration) | Q(owner__in=[owner, ""])
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


def _count_from(now: datetime) -> None:
    """Count the silence of agents from ``now``: times in the future were written before the clock was set back."""
    Agent.objects.filter(last_seen_at__gt=now).update(last_seen_at=now)
    Agent.objects.filter(lost_at__gt=now).update(lost_at=now)


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
    the portal keeps what it knew. Raises UserError for a capacity that is none, and for a second machine with the
    credentials of one that is heard."""
    _check_that_it_is_alone(message, agent, now)
    said: dict[str, Any] = {
        "status": str(Agent.Status.DRAINING if message.draining or agent.is_drained else Agent.Status.ALIVE),
        "backend": message.backend,
        "architecture": architecture_name(message.architecture),
        "version": message.version,
        "boot_id": message.boot_id,
        "gateway_url": message.gateway_url,
        "capacity": Slots.parse(message.capacity).to_json(),
        "devices": message.devices,
        "widest": [Slots.parse(one).to_json() for one in message.widest],
        "slowness": message.slowness,
        "notes": [note.model_dump() for note in [*message.notes, *_note_of_protocol(message)]],
        "engine": message.engine,
        "os_kernel": message.os_kernel,
        "low_disk": message.low_disk,
        "fault": message.fault,
        "capabilities": reported(message.capabilities, message.backend),
    }
    if message.live is not None:
        said["live"] = {"at": now.isoformat(), **message.live.model_dump(mode="json")}
    if any(note.code == _ENGINE_SILENT for note in message.notes):
        del said["capacity"], said["devices"], said["widest"]
    return said


def _note_said(agent: Agent, columns: Mapping[str, Any]) -> None:
    """Put into the object what the rest of the call looks at."""
    agent.backend, agent.status, agent.capabilities = columns["backend"], columns["status"], columns["capabilities"]


def _check_that_it_is_alone(message: SyncUp, agent: Agent, now: datetime) -> None:
    """Refuse a copied machine: each would report the kernels of the other as gone. A reboot takes longer than this."""
    if not agent.boot_id or agent.boot_id == message.boot_id or agent.last_seen_at is None:
        return
    if timedelta() <= now - agent.last_seen_at < _OTHER_MACHINE_WAITS:
        text = Message(
            "Another machine with the credentials of agent {agent} was seen less than {seconds} s ago. "
            "Give a copied machine a name and credentials of its own.",
            agent=agent.name,
            seconds=_OTHER_MACHINE_WAITS.seconds,
        )
        raise UserError(text, code="other-machine")


def _undescribed(columns: dict[str, Any], agent: Agent) -> dict[str, UUID]:
    """Return the slots that may need a row: those that are new at this node, and those that only nodes know, whose rows
    go with the node that offered them first."""
    offered = columns.get("capacity", {})
    return {slot: agent.pk for slot in offered if slot not in agent.capacity or not is_usual(slot)}


def _note_of_protocol(message: SyncUp) -> list[Note]:
    """Return a note when the agent speaks another protocol than this portal."""
    if message.protocol == PROTOCOL:
        return []
    older = "agent" if message.protocol < PROTOCOL else "portal"
    return [
        Note(
            code="other-protocol",
            message=Message(
                "The agent speaks protocol {protocol}, the portal protocol {portal_protocol}: features that one "
                "of them lacks are not used.",
                protocol=message.protocol,
                portal_protocol=PROTOCOL,
            ),
            fix=Message("Upgrade the {older}.", older=older),
        )
    ]


def _is_news(agent: Agent, columns: dict[str, Any]) -> bool:
    said = columns["status"], columns["low_disk"], columns["fault"], columns.get("capacity", agent.capacity)
    before = agent.status, agent.low_disk, agent.fault, agent.capacity
    return said != before or frozenset(columns["capabilities"]) != capabilities_of(agent)


def _of_digest(digest: Any) -> QuerySet[Any, Any]:
    return Agent.objects.registered().filter(token_digest=digest).order_by()[:1]
