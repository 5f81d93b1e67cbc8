"""What holds for every snapshot."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from backendai.core.slots import Slots
from backendai.scheduler.decide import decide
from backendai.scheduler.feasible import closed_gate, why_not
from backendai.scheduler.rank import wasted
from backendai.scheduler.sequence import fifo, sequence_named
from tests.scheduler.worlds import NOW, a_snapshot, an_agent, random_agents, random_sessions, random_snapshots

many = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)


def parts_of(session):
    """What each agent gets of a session: (kernels, slots, architecture) once, or once per kernel."""
    if session.multi_node:
        return [((kernel,), kernel.slots, kernel.architecture) for kernel in session.kernels]
    architecture = max(kernel.architecture for kernel in session.kernels)
    return [(session.kernels, session.total, architecture)]


def booked(agent, slots, kernels):
    return replace(agent, occupied=agent.occupied + slots, kernels=agent.kernels + kernels)


def after(snapshot, plan):
    """The agents when the plan is carried out, by id."""
    agents = {agent.id: agent for agent in snapshot.agents}
    kernels = {kernel.id: kernel for session in snapshot.pending for kernel in session.kernels}
    for placement in plan.placements:
        for kernel_id, agent_id in placement.kernels.items():
            agents[agent_id] = booked(agents[agent_id], kernels[kernel_id].slots, 1)
    return agents


@many
@given(random_snapshots())
def test_it_puts_no_agent_over_what_it_has(snapshot):
    plan = decide(snapshot)
    before = {agent.id: agent for agent in snapshot.agents}
    for agent_id, agent in after(snapshot, plan).items():
        taken = agent.occupied - before[agent_id].occupied
        assert taken.fits(Slots({name: max(before[agent_id].free[name], 0) for name in taken}))
        if agent.kernels > before[agent_id].kernels:
            assert agent.alive
            assert agent.schedulable
            assert agent.max_kernels is None or agent.kernels <= agent.max_kernels


@many
@given(random_snapshots())
def test_it_places_a_session_whole_or_not_at_all(snapshot):
    sessions = {session.id: session for session in snapshot.pending}
    agents = {agent.id: agent for agent in snapshot.agents}
    for placement in decide(snapshot).placements:
        session = sessions[placement.session_id]
        assert placement.kernels.keys() == {kernel.id for kernel in session.kernels}
        assert session.multi_node or len(set(placement.kernels.values())) == 1
        for kernel in session.kernels:
            assert kernel.architecture in ("", agents[placement.kernels[kernel.id]].architecture)


@many
@given(random_snapshots())
def test_it_answers_for_every_session_once_and_numbers_those_that_wait(snapshot):
    plan = decide(snapshot)
    answered = [each.session_id for each in (*plan.placements, *plan.waits)]
    assert sorted(answered) == sorted(session.id for session in snapshot.pending)
    assert [wait.position for wait in plan.waits] == list(range(1, len(plan.waits) + 1))
    for wait in plan.waits:
        assert wait.steps[-1].code == wait.reason.code
        assert [step.passed for step in wait.steps].count(False) == 1


@many
@given(random_snapshots(), st.randoms(use_true_random=False))
def test_it_does_not_depend_on_the_order_in_which_it_is_told(snapshot, chance):
    agents, pending = list(snapshot.agents), list(snapshot.pending)
    chance.shuffle(agents)
    chance.shuffle(pending)
    assert decide(replace(snapshot, agents=tuple(agents), pending=tuple(pending))) == decide(snapshot)


@many
@given(random_snapshots())
def test_it_does_not_let_a_session_wait_for_resources_that_are_there(snapshot):
    plan = decide(snapshot)
    agents = after(snapshot, plan).values()
    sessions = {session.id: session for session in snapshot.pending}
    for wait in plan.waits:
        session = sessions[wait.session_id]
        if wait.reason.code in ("insufficient-resources", "too-many-kernels") and len(parts_of(session)) == 1:
            kernels, slots, architecture = parts_of(session)[0]
            assert all(why_not(agent, slots, len(kernels), architecture) for agent in agents)


@many
@given(random_agents(), random_sessions(most=3))
def test_it_says_never_only_when_no_assignment_to_empty_agents_exists(agents, sessions):
    ready = [replace(session, image_build=None) for session in sessions]
    for session in ready:
        waits = decide(a_snapshot(agents, [session])).waits
        if waits and waits[0].reason.never and closed_gate(session, NOW) is None:
            assert not could_run_alone(session, agents)


def could_run_alone(session, agents):
    empty = [replace(agent, occupied=Slots(), kernels=0, alive=True, schedulable=True) for agent in agents]
    parts = parts_of(session)
    return any(holds(parts, choice) for choice in product(empty, repeat=len(parts)))


def holds(parts, choice):
    agents = {agent.id: agent for agent in choice}
    for (kernels, slots, architecture), chosen in zip(parts, choice, strict=True):
        if why_not(agents[chosen.id], slots, len(kernels), architecture):
            return False
        agents[chosen.id] = booked(agents[chosen.id], slots, len(kernels))
    return True


@many
@given(random_snapshots(sequence="fifo", retries_to_skip=0))
def test_it_lets_nobody_overtake_the_session_that_is_first_in_line(snapshot):
    plan = decide(snapshot)
    turns = {session.id: turn for turn, session in enumerate(fifo(snapshot.pending))}
    behind = [wait for wait in plan.waits if wait.reason.code == "behind-in-queue"]
    lacking = ("insufficient-resources", "too-many-kernels")
    blockers = [wait for wait in plan.waits if wait.reason.code in lacking and not wait.reason.never]
    assert len(blockers) <= 1
    for blocker in blockers:
        assert all(turns[placement.session_id] < turns[blocker.session_id] for placement in plan.placements)
        assert all(turns[wait.session_id] > turns[blocker.session_id] for wait in behind)
        assert all(wait.reason.details["blocker"] == str(blocker.session_id) for wait in behind)
    assert bool(blockers) or not behind


@many
@given(random_snapshots())
def test_it_always_takes_the_best_agent_of_a_plain_search(snapshot):
    """The rankings that are mended as the pass goes give what sorting all agents anew each time would."""
    plan = decide(snapshot)
    placed = {placement.session_id: placement for placement in plan.placements}
    agents = {agent.id: agent for agent in snapshot.agents}
    for session in sequence_named(snapshot.rules.sequence)(snapshot.pending):
        if session.id not in placed:
            continue
        for kernels, slots, architecture in parts_of(session):
            chosen = agents[placed[session.id].kernels[kernels[0].id]]
            if len(parts_of(session)) == 1:
                assert chosen == plain_best(agents.values(), session, snapshot, slots, len(kernels), architecture)
            agents[chosen.id] = booked(chosen, slots, len(kernels))


def plain_best(agents, session, snapshot, slots, kernels, architecture):
    direction = 1 if snapshot.rules.selection == "concentrated" else -1

    def key(agent):
        left = [direction * max(agent.free[name], 0) for name in snapshot.rules.slot_order]
        return agent.id in session.avoid_agents, wasted(agent.free, slots), left, agent.name

    return min((agent for agent in agents if not why_not(agent, slots, kernels, architecture)), key=key)


@many
@given(random_agents(), random_sessions(most=1), st.sampled_from(["concentrated", "dispersed"]))
def test_it_still_places_a_lone_single_node_session_when_an_agent_joins(agents, sessions, selection):
    assume(sessions and agents and not sessions[0].multi_node)
    if decide(a_snapshot(agents[1:], sessions, selection=selection)).placements:
        assert decide(a_snapshot(agents, sessions, selection=selection)).placements


@many
@given(random_snapshots())
def test_it_leaves_nobody_waiting_for_resources_when_an_agent_joins_that_could_hold_them_all(snapshot):
    pending = tuple(
        replace(session, kernels=tuple(replace(kernel, architecture="x86_64") for kernel in session.kernels))
        for session in snapshot.pending
    )
    huge = replace(an_agent("huge"), capacity=sum((session.total for session in pending), Slots()))
    plan = decide(replace(snapshot, agents=(*snapshot.agents, huge), pending=pending))
    for wait in plan.waits:
        session = next(each for each in pending if each.id == wait.session_id)
        assert closed_gate(session, NOW) is not None
