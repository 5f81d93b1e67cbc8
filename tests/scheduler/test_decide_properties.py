"""What holds for every snapshot."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from backendai.base.core.slots import Slots
from backendai.scheduler.capacity.filters import why_not
from backendai.scheduler.decide import decide
from backendai.scheduler.sequences import SEQUENCES
from tests.effort import examples
from tests.scheduler.checks import CHECKS
from tests.scheduler.crowds import crowds
from tests.scheduler.worlds import a_snapshot, an_agent, random_agents, random_sessions, random_snapshots

many = settings(
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large],
)
OWN_AFFAIRS = {"no-kernels", "mixed-architectures", "start-time-not-reached", "image-building", "image-build-failed"}


@many
@given(crowds())
def test_every_check_holds_for_every_group(snapshot):
    pass_all(snapshot)


@many
@given(random_snapshots())
def test_every_check_holds_for_odd_sessions_and_agents(snapshot):
    pass_all(snapshot)


def pass_all(snapshot):
    """One snapshot for all checks: to draw it takes longer than to check it."""
    for check in CHECKS:
        note(check.__name__)
        check(snapshot, decide)


@many
@given(random_agents(), random_sessions(most=3))
def test_it_says_never_only_when_no_assignment_to_empty_agents_exists(agents, sessions):
    for session in sessions:
        waits = decide(a_snapshot(agents, [session])).waits
        if waits and waits[0].reason.never and waits[0].reason.code not in OWN_AFFAIRS:
            assert not could_run_alone(session, agents)


def could_run_alone(session, agents):
    empty = [replace(agent, occupied=Slots(), kernels=0, alive=True, schedulable=True) for agent in agents]
    parts = parts_of(session)
    return any(holds(parts, choice) for choice in product(empty, repeat=len(parts)))


def parts_of(session):
    """What each agent gets of a session: (kernels, slots, architecture) once, or once per kernel."""
    if session.multi_node:
        return [(1, kernel.slots, kernel.architecture) for kernel in session.kernels]
    return [(len(session.kernels), session.total, max(kernel.architecture for kernel in session.kernels))]


def holds(parts, choice):
    agents = {agent.id: agent for agent in choice}
    for (kernels, slots, architecture), chosen in zip(parts, choice, strict=True):
        agent = agents[chosen.id]
        if why_not(agent, slots, kernels, architecture):
            return False
        agents[chosen.id] = replace(agent, occupied=agent.occupied + slots, kernels=agent.kernels + kernels)
    return True


@many
@given(random_agents(), random_sessions(most=1), st.sampled_from(["concentrated", "dispersed"]))
def test_it_still_places_a_lone_single_node_session_when_an_agent_joins(agents, sessions, selection):
    assume(sessions and agents and not sessions[0].multi_node)
    if decide(a_snapshot(agents[1:], sessions, selection=selection)).placements:
        assert decide(a_snapshot(agents, sessions, selection=selection)).placements


@many
@given(random_snapshots(), st.sampled_from(sorted(SEQUENCES)))
def test_it_leaves_nobody_waiting_for_resources_when_an_agent_joins_that_could_hold_them_all(snapshot, sequence):
    pending = tuple(
        session._replace(kernels=tuple(kernel._replace(architecture="x86_64") for kernel in session.kernels))
        for session in snapshot.pending
    )
    huge = replace(an_agent("huge"), capacity=sum((session.total for session in pending), Slots()))
    rules = replace(snapshot.rules, sequence=sequence)
    plan = decide(replace(snapshot, agents=(*snapshot.agents, huge), pending=pending, rules=rules))
    assert {wait.reason.code for wait in plan.waits} <= OWN_AFFAIRS
