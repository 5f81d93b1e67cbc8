"""Drains agents before a shutdown: no new sessions start, and running sessions continue up to a deadline if one is set.

Owners are informed at once, in each session's history and on its page.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from backendai.base.core.errors import Conflict, UserError
from backendai.base.core.messages import Message
from backendai.base.core.slots import kernels_in_words
from backendai.base.wire.broker.hints import hint_on_commit
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.domain.accounts.models import User
from backendai.domain.activity.services import audit
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.services.life.ending import end_each
from backendai.domain.compute.services.life.losses import MOST_AT_ONCE, RUN_AGAIN, stop_for_another_try
from backendai.domain.compute.services.life.stopping import stop_each
from backendai.domain.compute.services.notices.owners import warn_owners, withdraw_warnings
from backendai.domain.compute.services.placing.place import lock_group
from backendai.domain.compute.services.status.history import Entry, write_history
from backendai.domain.compute.services.status.moves import StatusCause, touch
from backendai.domain.compute.status import PLACED, STARTING, Outcome, Phase, Status

DRAINED = "agent-drained"
LONGEST_DRAIN = timedelta(days=365)
_ROUNDED_UP = timedelta(seconds=59)  # texts have no seconds, so an end is rounded up
_ALIVE = STARTING | {Status.RUNNING}


def start_drain(actor: User, agent: Agent, *, now: datetime, ends_at: datetime | None = None) -> int:
    """Start to drain an agent; returns the number of its kernels. The agent takes no new sessions, and its running
    sessions end at ``ends_at`` (None: never). Their owners are informed. If the agent is draining already, its deadline
    changes."""
    if agent.status == Agent.Status.TERMINATED:
        raise Conflict("Agent {agent} was removed permanently.", agent=agent.name, code="agent-terminated")
    if ends_at is not None and not now < ends_at <= now + LONGEST_DRAIN:
        text = Message("The deadline is in the past, or more than {days} days ahead.", days=LONGEST_DRAIN.days)
        raise UserError(text, field="ends_at", code="invalid-date")
    with transaction.atomic():
        lock_group(agent.resource_group_id)  # waits for a pass that is placing sessions here
        kernels = Kernel.objects.filter(agent=agent, status__in=PLACED)
        number = kernels.count()
        beginning = {} if agent.is_drained else {"drain_started_at": now, "drain_kernels": number}
        Agent.objects.filter(pk=agent.pk).update(drain_ends_at=ends_at, **beginning)
        Agent.objects.filter(pk=agent.pk, status=Agent.Status.ALIVE).update(status=Agent.Status.DRAINING)
        affected = set(kernels.filter(session__status__in=_ALIVE).values_list("session_id", flat=True))
        _tell_owners(affected, agent, ends_at, now)
        audit(
            actor.pk, "agent.drain", "agent", [agent.pk],
            name=agent.name, kernels=number, ends_at=ends_at.isoformat() if ends_at else None,
        )  # fmt: skip
    agent.refresh_from_db()
    return number


def cancel_drain(actor: User, agent: Agent) -> None:
    """Let the agent take sessions again from its next sync on. Raises Conflict if it is not draining."""
    with transaction.atomic():
        # The status is unchanged, as only the agent knows whether it is stopping by itself.
        drained = Agent.objects.filter(pk=agent.pk, drain_started_at__isnull=False)
        if not drained.update(drain_started_at=None, drain_ends_at=None, drain_kernels=0):
            raise Conflict("Agent {agent} is not being drained.", agent=agent.name, code="not-draining")
        affected = set(Kernel.objects.filter(agent=agent, status__in=PLACED).values_list("session_id", flat=True))
        touch(affected)
        withdraw_warnings(affected)
        audit(actor.pk, "agent.cancel-drain", "agent", [agent.pk], name=agent.name)
        hint_on_commit("controller.schedule_group", agent.resource_group_id, queue=CONTROL_QUEUE)
    agent.refresh_from_db()


def lost_at_deadline(agent: Agent) -> list[ComputeSession]:
    """Return the running sessions of the agent that a drain can neither stop nor run again; at most ``MOST_AT_ONCE``.

    Whether the agent and a storage host can store the files of the others is known only at the deadline. One query.
    """
    running = Kernel.objects.filter(agent=agent, status__in=_ALIVE, session__status=Status.RUNNING).exclude(RUN_AGAIN)
    rows = ComputeSession.objects.filter(pk__in=running.values("session")).order_by("started_at", "pk")
    return [session for session in rows[:MOST_AT_ONCE] if not session.can_stop]


def end_drained(now: datetime) -> int:
    """End sessions on agents whose drain deadline has passed; returns how many. At most ``MOST_AT_ONCE`` kernels of
    each kind per call: starting sessions, and batch sessions with a retry, become pending again; sessions that can be
    stopped are stopped, and resumed on other agents; others end with ``agent-drained``."""
    due = list(Agent.objects.filter(drain_ends_at__lte=now).values_list("pk", flat=True))
    if not due:
        return 0
    kernels = Kernel.objects.filter(agent__in=due, status__in=_ALIVE, session__status__in=_ALIVE).order_by("pk")
    starting = kernels.filter(session__status__in=STARTING) | kernels.filter(RUN_AGAIN, session__may_be_stopped=False)
    again = stop_for_another_try(starting, DRAINED, _sentence, now=now)
    rows = kernels.filter(session__status=Status.RUNNING).exclude(session__in=again)
    whys = {
        session_id: StatusCause(Phase.REPAIR, DRAINED, _sentence(agent), {"agent": agent}, outcome=Outcome.EXPIRED)
        for session_id, agent in rows.values_list("session_id", "agent__name")[:MOST_AT_ONCE]
    }
    stopped = stop_each(list(whys), whys.get, now=now)
    left = kernels.filter(RUN_AGAIN, session__may_be_stopped=True).exclude(session__in=stopped)
    again |= stop_for_another_try(left, DRAINED, _sentence, now=now)
    rest = {pk: why for pk, why in whys.items() if pk not in stopped | again}
    return len(again) + len(stopped) + len(end_each(rest, only_from=[Status.RUNNING], now=now).terminating)


def move_agent(actor: User, agent: Agent, group: ResourceGroup, *, force: bool = False) -> None:
    """Move the agent to another resource group. Raises Conflict if it belongs to that group already, and without
    ``force`` if it runs sessions, as these would still count in the old group."""
    if agent.resource_group_id == group.pk:
        raise Conflict(
            "Agent {agent} already belongs to {group}.",
            agent=agent.name,
            group=group.name,
            field="resource_group",
            code="no-change",
        )
    with transaction.atomic():
        for group_id in sorted({agent.resource_group_id, group.pk}):
            lock_group(group_id)
        number = Kernel.objects.filter(agent=agent, status__in=PLACED).count()
        if number and not force:
            raise Conflict(
                "Agent {agent} runs {running}: drain it first. A forced move takes effect at once; the "
                "kernels keep running there and count in their old group until they end.",
                agent=agent.name,
                running=kernels_in_words(number),
                code="agent-in-use",
                kernels=number,
            )
        changes = {"resource_group": [agent.resource_group.name, group.name]}
        Agent.objects.filter(pk=agent.pk).update(resource_group=group)
        audit(actor.pk, "agent.move", "agent", [agent.pk], name=agent.name, changes=changes, kernels=number)
        hint_on_commit("controller.schedule_group", group.pk, queue=CONTROL_QUEUE)
    agent.refresh_from_db()


def _tell_owners(session_ids: Collection[UUID], agent: Agent, ends_at: datetime | None, now: datetime) -> None:
    """Write the message into the sessions' histories, and let browsers reload their pages."""
    until = Message("The session ends by {at}", at=f"{ends_at + _ROUNDED_UP:%Y-%m-%d %H:%M} UTC") if ends_at else ""
    message = Message(
        "Agent {agent} is being drained. {until}.",
        agent=agent.name,
        until=until or Message("The session may continue, but start no further work in it"),
    )
    touch(session_ids)  # locks the sessions, so that history rows follow each other without a gap
    if ends_at:
        warn_owners(dict.fromkeys(session_ids, message), ends_at, now=now)
    rows = ComputeSession.objects.filter(pk__in=session_ids).values_list("pk", "status")
    by_status: dict[str, list[UUID]] = {}
    for pk, status in rows:
        by_status.setdefault(status, []).append(pk)
    for status, ids in by_status.items():
        entries = [Entry(pk, status, Outcome.SUCCESS, "agent-draining", message) for pk in ids]
        write_history(entries, Phase.RUN, status, now=now)


def _sentence(agent: str) -> str:
    return Message("Agent {agent} was drained by an administrator, and the deadline passed.", agent=agent)
