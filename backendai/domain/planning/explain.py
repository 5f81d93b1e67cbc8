"""Explains why a session waits and which changes would start it now. Simulates the next pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from django.db.models import Exists, OuterRef

from backendai.base.core.messages import Message
from backendai.base.core.slots import Slots
from backendai.domain.accounts.models import User
from backendai.domain.cluster.groups.rules import wrong_rules
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.status import TERMINAL, Status
from backendai.domain.planning.deciding import WrongRules, decide_apart
from backendai.domain.planning.front import first_in
from backendai.domain.planning.pulls import PullFirst
from backendai.domain.planning.snapshot import GroupReading, read_for, read_group
from backendai.scheduler.explaining.suggest import Suggestion, suggest
from backendai.scheduler.plan import Placement, Plan, Reason, Step, Wait
from backendai.scheduler.snapshot import SessionView, Snapshot

_FAILS = Message("The scheduler fails on this session; its log has the error.")
_MOST_NAMED = 20
_MOST_GROUPS = 5
_Decided = TypeVar("_Decided", Placement, Wait)


class Verdict(StrEnum):
    """The decision of the next pass about a session. PLACED and ENDED: the pass ignores it, as it is placed or has
    ended already."""

    STARTS_NOW = "starts-now"
    WAITS = "waits"
    NEVER = "never"  # waiting cannot help unless agents or rules change
    PLACED = "placed"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class SessionAhead:
    """A session that the scheduler tries before the user's own. Only sessions that the user may see are named."""

    id: UUID
    name: str
    priority: int
    created_at: datetime
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reason why a session does not start, or the agents on which it would start.

    ``now``: the time of the explanation. For several equal sessions it describes the first that does not start, and
    ``started`` is the number of sessions that start. ``position`` counts from 1 among the group's ``waiting`` sessions.
    ``ahead``: the sessions that the user may see among the first twenty in front; ``ahead_total``: the number of all in
    front. ``agents``: the names of the agents on which it would start; ``kernel_agents``: the agent of each kernel, by
    id. ``pull``: the agents that pull its image before that. ``view``: the waiting session, as the pass sees it.
    """

    now: datetime
    group: str
    verdict: Verdict
    message: str
    reason: Reason | None = None
    position: int | None = None
    waiting: int = 0
    ahead: tuple[SessionAhead, ...] = ()
    ahead_total: int = 0
    agents: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    started: int = 0
    kernel_agents: Mapping[UUID, UUID] = field(default_factory=dict)
    pull: PullFirst | None = None
    view: SessionView | None = None


def explain(session: ComputeSession, user: User, *, now: datetime) -> Explanation:
    """Return the decision of the next pass about a session. Writes nothing. The caller checks that the user may see the
    session."""
    group = session.resource_group
    if session.status != Status.PENDING:
        verdict = Verdict.ENDED if session.status in TERMINAL else Verdict.PLACED
        message = session.reason_text or Message("The session is {status}.", status=session.get_status_display())
        return Explanation(now, group.name, verdict, message, _stored(session))
    reading = read_group(group, now, even_if_idle=True)
    view = next((each for each in reading.snapshot.pending if each.id == session.pk), None)
    if view is None:  # the pass does not consider the session, or cannot read it
        message = session.reason_text or Message("No scheduler pass has considered it yet.")
        return Explanation(now, group.name, Verdict.WAITS, message, _stored(session))
    others = partial(other_groups, session.project, group)
    return foresee(reading, [view], user, least=session.image.minimum_slots, others=others)


def foresee(
    reading: GroupReading,
    sessions: Sequence[SessionView],
    user: User,
    *,
    least: Slots,
    others: Callable[[], Sequence[ResourceGroup]],
) -> Explanation:
    """Return the decision of a pass about equal sessions. Names only those that the user may see. ``others``: returns
    other groups in which a single one could start."""
    views, many = {each.id: each for each in sessions}, reading.stand_ins
    try:
        decision = decide_apart(reading.snapshot)
    except WrongRules as wrong:
        return _no_pass(reading.snapshot, "wrong-group-rules", _unusable(reading.snapshot.group, wrong))
    if any(each.id in views for each, _ in decision.faults):
        return _no_pass(reading.snapshot, "scheduler-error", _FAILS)
    plan, snapshot = decision.plan, decision.snapshot
    placements = [each for each in plan.placements if each.session_id in views]
    if len(placements) == len(views):
        return _start(snapshot, [_among_all(each, plan, many) for each in placements])
    wait = min((each for each in plan.waits if each.session_id in views), key=lambda each: each.position)
    wait, ahead = _among_all(wait, plan, many), _ahead_of(wait, plan, reading)
    reason, in_front = _seen_by(user, wait)
    changes = _changes(snapshot, views, wait.session_id, plan, least, others)
    return Explanation(
        now=snapshot.now,
        group=snapshot.group,
        verdict=Verdict.NEVER if wait.reason.never else Verdict.WAITS,
        message=Message.joined([wait.reason.message, in_front, wait.reason.aside]),
        reason=reason,
        position=wait.position,
        waiting=sum(many.get(each.session_id, 1) for each in plan.waits),
        ahead=_named(ahead, user),
        ahead_total=wait.position - 1,
        steps=wait.steps,
        suggestions=tuple(changes),
        started=len(placements),
        view=views[wait.session_id],
    )


def _ahead_of(wait: Wait, plan: Plan, reading: GroupReading) -> list[UUID]:
    """Return the sessions in front. If some of them were not read, only the first ``_MOST_NAMED`` of the last pass."""
    ahead = [each.session_id for each in plan.waits if each.position < wait.position]
    number = sum(reading.stand_ins.get(pk, 1) for pk in ahead)
    known = reading.stand_ins.keys().isdisjoint(ahead)
    return ahead if known else first_in(reading.snapshot.group, min(number, _MOST_NAMED))


def _among_all(decided: _Decided, plan: Plan, many: Mapping[UUID, int]) -> _Decided:
    """Return the decision with its place among all sessions of the group, of which stand-ins count as many."""
    before = sum(many.get(each.session_id, 1) - 1 for each in plan.waits if each.turn < decided.turn)
    within = decided.within._replace(pending=decided.within.pending + sum(many.values()) - len(many))
    if isinstance(decided, Wait):
        decided = decided._replace(position=decided.position + before)
    return decided._replace(turn=decided.turn + before, within=within)


def _unusable(group: str, wrong: WrongRules) -> Message:
    return Message("The rules of {group} cannot be applied: {wrong}.", group=group, wrong=wrong)


def _changes(
    snapshot: Snapshot,
    views: Mapping[UUID, SessionView],
    waiting: UUID,
    plan: Plan,
    least: Slots,
    others: Callable[[], Sequence[ResourceGroup]],
) -> list[Suggestion]:
    if len(views) > 1:
        return []  # a change of several equal sessions would also change those that start
    elsewhere = [read_for((), group, snapshot.now).snapshot for group in others()]
    return suggest(snapshot, views[waiting], elsewhere, least=least, plan=plan)


def other_groups(project: Any, group: ResourceGroup) -> list[ResourceGroup]:
    """Return other groups that the project can use, with agents and valid rules. Only the ``_MOST_GROUPS`` oldest
    groups are checked."""
    agents = Agent.objects.filter(resource_group=OuterRef("pk"), status=Agent.Status.ALIVE)
    usable = ResourceGroup.objects.usable_for(project).exclude(pk=group.pk).filter(Exists(agents))
    return [other for other in usable.order_by("created_at")[:_MOST_GROUPS] if not wrong_rules(other)]


def _stored(session: ComputeSession) -> Reason | None:
    if not session.status_reason:
        return None
    return Reason(session.status_reason, session.reason_text, dict(session.status_data))


def _no_pass(snapshot: Snapshot, code: str, message: str) -> Explanation:
    return Explanation(snapshot.now, snapshot.group, Verdict.WAITS, message, Reason(code, message))


def _start(snapshot: Snapshot, placements: Sequence[Placement]) -> Explanation:
    chosen = {kernel: agent for placement in placements for kernel, agent in placement.kernel_agents}
    used = set(chosen.values())
    agents = tuple(sorted(agent.name for agent in snapshot.agents if agent.id in used))
    message = Message("It starts now on {agents}.", agents=agents)
    return Explanation(
        snapshot.now,
        snapshot.group,
        Verdict.STARTS_NOW,
        message,
        agents=agents,
        steps=placements[0].steps,
        started=len(placements),
        kernel_agents=chosen,
    )


def _seen_by(user: User, wait: Wait) -> tuple[Reason, str]:
    """Return the wait's reason, and a sentence about the session in front. Both name that session only if the user may
    see it."""
    details = {**wait.reason.details, **wait.reason.aside_details}
    in_front = ""
    if blocker := details.get("blocker"):
        seen = ComputeSession.objects.visible_to(user).filter(pk=blocker).values_list("name", "owner__email").first()
        if seen is None:
            del details["blocker"]
        else:
            name, owner = seen
            in_front = Message("The session in front is {name} of {owner}.", name=name, owner=owner)
    return replace(wait.reason, details=details, aside_details={}), in_front


def _named(ahead: Sequence[UUID], user: User) -> tuple[SessionAhead, ...]:
    visible = ComputeSession.objects.visible_to(user).filter(pk__in=ahead[:_MOST_NAMED])
    rows = {
        row[0]: SessionAhead(*row)
        for row in visible.values_list("pk", "name", "priority", "created_at", "owner__email")
    }
    return tuple(rows[pk] for pk in ahead[:_MOST_NAMED] if pk in rows)
