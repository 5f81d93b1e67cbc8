"""What holds for every plan, as checks of a ``decide``: each raises AssertionError when it does not.

They know nothing of how the plan was made: all amounts are added up anew here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from random import Random

from backendai.base.core.slots import Slots
from backendai.scheduler.plan import Placement, Plan, Wait
from backendai.scheduler.snapshot import AgentView, DependencyState, SessionView, Snapshot

Decide = Callable[[Snapshot], Plan]
LACKS_ROOM = ("insufficient-resources", "too-many-kernels", "fragmented")


def no_agent_is_over_capacity(snapshot: Snapshot, decide: Decide) -> None:
    plan = decide(snapshot)
    taken = allocations_of(snapshot, plan.placements)
    for agent in snapshot.agents:
        amounts, kernels = taken.get(agent.id, (Slots(), 0))
        assert all(amount <= max(agent.free[name], 0) for name, amount in amounts.items())
        if kernels:
            assert agent.alive
            assert agent.schedulable
            assert agent.max_kernels is None or agent.kernels + kernels <= agent.max_kernels


def no_limit_is_exceeded(snapshot: Snapshot, decide: Decide) -> None:
    placed = sessions_of(snapshot, decide(snapshot).placements)
    for key, limit in snapshot.limits.items():
        mine = [session for session in placed if key in session.holder.keys]
        used = limit.used + total_of(mine)
        if mine:
            assert limit.max_sessions is None or limit.sessions + len(mine) <= limit.max_sessions
        for name in total_of(mine):
            assert name not in limit.forbidden
            if name in limit.slots or limit.unnamed_limited:
                assert used[name] <= limit.slots[name]


def limits_hold_only_whom_they_must(snapshot: Snapshot, decide: Decide) -> None:
    plan = decide(snapshot)
    placed, sessions = sessions_of(snapshot, plan.placements), by_id(snapshot)
    for wait in plan.waits:
        if wait.reason.code not in ("slot-limit", "too-many-sessions"):
            continue
        session, details = sessions[wait.session_id], wait.reason.details
        key = f"{details['scope']}:{details['name']}"
        limit = snapshot.limits[key]
        mine = [each for each in placed if key in each.holder.keys]
        if wait.reason.code == "too-many-sessions":
            assert limit.max_sessions is not None
            assert limit.sessions + len(mine) >= limit.max_sessions
            assert wait.reason.never == (limit.max_sessions == 0)
        else:
            slot = str(details["slot"])
            asked, most = total_of([session])[slot], limit.slots[slot]
            assert limit.used[slot] + total_of(mine)[slot] + asked > most
            assert wait.reason.never == (asked > most)


def sessions_are_placed_whole(snapshot: Snapshot, decide: Decide) -> None:
    sessions = by_id(snapshot)
    agents = {agent.id: agent for agent in snapshot.agents}
    for placement in decide(snapshot).placements:
        session = sessions[placement.session_id]
        assert placement.kernels.keys() == {kernel.id for kernel in session.kernels}
        assert session.multi_node or len(set(placement.kernels.values())) == 1
        assert not session.designated or session.designated.issuperset(placement.kernels.values())
        for kernel in session.kernels:
            assert kernel.architecture in ("", agents[placement.kernels[kernel.id]].architecture)


def gates_let_nobody_through(snapshot: Snapshot, decide: Decide) -> None:
    for session in sessions_of(snapshot, decide(snapshot).placements):
        assert session.starts_at is None or session.starts_at <= snapshot.now
        assert session.image_build is None
        assert session.session_type in snapshot.rules.session_types
        assert all(each.state == DependencyState.SUCCEEDED for each in session.dependencies)


def the_order_of_the_input_does_not_matter(snapshot: Snapshot, decide: Decide) -> None:
    chance = Random(7)

    def mixed(items: Iterable[object]) -> list[object]:
        shuffled = list(items)
        chance.shuffle(shuffled)
        return shuffled

    other = replace(
        snapshot,
        agents=tuple(mixed(snapshot.agents)),
        pending=tuple(mixed(snapshot.pending)),
        running=tuple(mixed(snapshot.running)),
        **{name: dict(mixed(getattr(snapshot, name).items())) for name in ("limits", "held", "weights", "past_usage")},
    )
    assert decide(other) == decide(snapshot)


def everybody_is_answered_once_with_a_reason(snapshot: Snapshot, decide: Decide) -> None:
    plan = decide(snapshot)
    answered = [each.session_id for each in (*plan.placements, *plan.waits)]
    assert sorted(answered) == sorted(session.id for session in snapshot.pending)
    assert [wait.position for wait in plan.waits] == list(range(1, len(plan.waits) + 1))
    for wait in plan.waits:
        assert wait.steps[-1].code == wait.reason.code
        assert [step.passed for step in wait.steps].count(False) == 1
        assert wait.reason.message.endswith(".")
        assert wait.reason.details or wait.reason.aside_details
        assert wait.tried <= (wait.reason.code in LACKS_ROOM)


def turns_come_in_order(snapshot: Snapshot, decide: Decide) -> None:
    rules = snapshot.rules
    if rules.sequence == "drf":
        return

    def key(session: SessionView) -> tuple[object, ...]:
        age = session.created_at.timestamp(), session.id.int
        if rules.sequence == "lifo":
            return -session.priority, -age[0], -age[1]
        if rules.sequence == "fair-share":
            keys = session.holder.domain, session.holder.project, session.holder.user
            return -session.priority, [_burden(snapshot, key) for key in keys], age
        return -session.priority, is_passed(session, snapshot) and not rules.backfill, age

    assert turns_of(snapshot, decide(snapshot)) == sorted(snapshot.pending, key=key)


def nobody_overtakes_one_that_holds_them_back(snapshot: Snapshot, decide: Decide) -> None:
    """A strict sequence: nobody behind it. Any other: nobody of lower priority."""
    if snapshot.rules.backfill:
        return
    plan = decide(snapshot)
    order = {session.id: turn for turn, session in enumerate(turns_of(snapshot, plan))}
    sessions = by_id(snapshot)
    for wait in plan.waits:
        blocker = sessions[wait.session_id]
        if not wait.tried or is_passed(blocker, snapshot):
            continue
        for session in sessions_of(snapshot, plan.placements):
            assert session.priority >= blocker.priority
            assert snapshot.rules.sequence != "fifo" or order[session.id] < order[blocker.id]


def one_that_may_be_passed_holds_back_nobody(snapshot: Snapshot, decide: Decide) -> None:
    plan, sessions = decide(snapshot), by_id(snapshot)
    for wait in plan.waits:
        if wait.reason.code == "behind-in-queue" and not snapshot.rules.backfill:
            blocker = next(each for each in snapshot.pending if str(each.id) == wait.reason.aside_details["blocker"])
            assert not is_passed(blocker, snapshot)
        tired = 0 < snapshot.rules.retries_to_skip < sessions[wait.session_id].attempts
        assert wait.overtaken == tired


def nobody_waits_for_room_that_is_there(snapshot: Snapshot, decide: Decide) -> None:
    plan, sessions = decide(snapshot), by_id(snapshot)
    agents = after(snapshot, plan.placements)
    for wait in plan.waits:
        session = sessions[wait.session_id]
        if wait.reason.code in LACKS_ROOM and is_on_one_agent(session) and not wait.reason.never:
            assert not any(takes(agent, session) for agent in agents)


def the_smallest_share_comes_first(snapshot: Snapshot, decide: Decide) -> None:
    """A later placement could have been made now, for there is only less: so his share is no smaller now."""
    if snapshot.rules.sequence != "drf":
        return
    held = {user: dict(slots) for user, slots in snapshot.held.items()}
    placed = sessions_of(snapshot, decide(snapshot).placements)
    for turn, session in enumerate(placed):
        share = _share(snapshot, held, session.holder.user)
        for later in placed[turn + 1 :]:
            if later.priority == session.priority:
                assert _share(snapshot, held, later.holder.user) >= share
        mine = held.setdefault(session.holder.user, {})
        for name, amount in total_of([session]).items():
            mine[name] = mine.get(name, 0) + amount


def backfill_never_delays_the_first_in_line(snapshot: Snapshot, decide: Decide) -> None:
    """It starts at its reserved start; without one it starts after any ends with which it would have started alone."""
    if not snapshot.rules.backfill:
        return
    plan, sessions = decide(snapshot), by_id(snapshot)
    order = {session.id: turn for turn, session in enumerate(turns_of(snapshot, plan))}
    first = next((wait for wait in plan.waits if wait.tried and not _gave_way(wait, snapshot, sessions)), None)
    if first is None:
        return
    head = sessions[first.session_id]
    if not is_on_one_agent(head):
        return
    before = [each for each in plan.placements if order[each.session_id] < order[head.id]]
    if first.reason.until is not None:
        until = first.reason.until
        still = [each for each in plan.placements if not _ends_by(sessions[each.session_id], until, snapshot)]
        assert any(takes(agent, head) for agent in released(snapshot, still, until))
        return
    chance = Random(3)
    for _ in range(8):
        ended = {each.id for each in snapshot.running if chance.random() < 0.7}
        if any(takes(agent, head) for agent in released(snapshot, before, None, ended)):
            assert any(takes(agent, head) for agent in released(snapshot, plan.placements, None, ended))


def another_agent_takes_nobodys_place(snapshot: Snapshot, decide: Decide) -> None:
    """Who could start alone still could with one agent more."""
    if not snapshot.agents:
        return
    fewer = replace(snapshot, agents=snapshot.agents[:-1])
    for session in snapshot.pending:
        if is_on_one_agent(session) and decide(replace(fewer, pending=(session,))).placements:
            assert decide(replace(snapshot, pending=(session,))).placements


CHECKS: tuple[Callable[[Snapshot, Decide], None], ...] = (
    no_agent_is_over_capacity,
    no_limit_is_exceeded,
    limits_hold_only_whom_they_must,
    sessions_are_placed_whole,
    gates_let_nobody_through,
    the_order_of_the_input_does_not_matter,
    everybody_is_answered_once_with_a_reason,
    turns_come_in_order,
    nobody_overtakes_one_that_holds_them_back,
    one_that_may_be_passed_holds_back_nobody,
    nobody_waits_for_room_that_is_there,
    the_smallest_share_comes_first,
    backfill_never_delays_the_first_in_line,
    another_agent_takes_nobodys_place,
)


def by_id(snapshot: Snapshot) -> dict[object, SessionView]:
    return {session.id: session for session in snapshot.pending}


def sessions_of(snapshot: Snapshot, placements: Iterable[Placement]) -> list[SessionView]:
    sessions = by_id(snapshot)
    return [sessions[placement.session_id] for placement in placements]


def total_of(sessions: Iterable[SessionView]) -> Slots:
    return sum((kernel.slots for session in sessions for kernel in session.kernels), Slots())


def turns_of(snapshot: Snapshot, plan: Plan) -> list[SessionView]:
    """The sessions in the order of their turns, as the steps tell it."""
    sessions = by_id(snapshot)
    said = [(int(each.steps[0].message.split()[1]), each.session_id) for each in (*plan.placements, *plan.waits)]
    return [sessions[session_id] for _, session_id in sorted(said)]


def is_passed(session: SessionView, snapshot: Snapshot) -> bool:
    rules = snapshot.rules
    since = session.overtaken_since
    overdue = since is not None and snapshot.now - since >= rules.overtaking_limit
    return 0 < rules.retries_to_skip < session.attempts and not overdue


def is_on_one_agent(session: SessionView) -> bool:
    return not session.multi_node or len(session.kernels) == 1


def takes(agent: AgentView, session: SessionView) -> bool:
    """Whether the agent has room for all kernels of the session."""
    architectures = {kernel.architecture for kernel in session.kernels} - {"", agent.architecture}
    fits = all(amount <= agent.free[name] for name, amount in total_of([session]).items())
    kernels = agent.max_kernels is None or agent.kernels + len(session.kernels) <= agent.max_kernels
    is_meant = not session.designated or agent.id in session.designated
    return agent.alive and agent.schedulable and not architectures and fits and kernels and is_meant


def allocations_of(snapshot: Snapshot, placements: Iterable[Placement]) -> dict[object, tuple[Slots, int]]:
    """By agent: what the placements take of it, and how many kernels they are."""
    amounts = {kernel.id: kernel.slots for session in snapshot.pending for kernel in session.kernels}
    taken: dict[object, tuple[Slots, int]] = {}
    for placement in placements:
        for kernel_id, agent_id in placement.kernels.items():
            slots, kernels = taken.get(agent_id, (Slots(), 0))
            taken[agent_id] = slots + amounts[kernel_id], kernels + 1
    return taken


def after(snapshot: Snapshot, placements: Iterable[Placement]) -> list[AgentView]:
    """The agents once the placements are carried out."""
    taken = allocations_of(snapshot, placements)
    return [_with(agent, *taken.get(agent.id, (Slots(), 0))) for agent in snapshot.agents]


def released(
    snapshot: Snapshot, placements: Iterable[Placement], until: datetime | None, ended: Iterable[object] = ()
) -> list[AgentView]:
    """The agents once the placements are carried out and those that are known to end by then, or named, have ended."""
    agents = {agent.id: agent for agent in after(snapshot, placements)}
    for running in snapshot.running:
        is_over = until is not None and running.ends_at is not None and running.ends_at <= until
        if is_over or running.id in set(ended):
            for agent_id, amounts, kernels in running.allocations:
                agent = agents[agent_id]
                agents[agent_id] = replace(agent, occupied=agent.occupied - amounts, kernels=agent.kernels - kernels)
    return list(agents.values())


def _with(agent: AgentView, amounts: Slots, kernels: int) -> AgentView:
    return replace(agent, occupied=agent.occupied + amounts, kernels=agent.kernels + kernels)


def _burden(snapshot: Snapshot, key: str) -> float:
    return snapshot.past_usage.get(key, 0.0) / snapshot.weights.get(key, 1.0)


def _share(snapshot: Snapshot, held: dict[str, dict[str, int]], user: str) -> float:
    able = [agent.capacity for agent in snapshot.agents if agent.alive and agent.schedulable]
    capacity = sum(able, Slots())
    shares = [amount / capacity[name] for name, amount in held.get(user, {}).items() if capacity[name]]
    return max(shares, default=0.0) / snapshot.weights.get(user, 1.0)


def _ends_by(session: SessionView, until: datetime, snapshot: Snapshot) -> bool:
    return session.longest_run is not None and snapshot.now + session.longest_run <= until


def _gave_way(wait: Wait, snapshot: Snapshot, sessions: dict[object, SessionView]) -> bool:
    return wait.reason.until is None and is_passed(sessions[wait.session_id], snapshot)
