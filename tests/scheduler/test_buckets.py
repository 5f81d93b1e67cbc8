"""Stretches of a bucket are passed over only where nobody has room: how long they are changes no decision."""

from __future__ import annotations

from random import Random

import pytest

from backendai.scheduler import choose
from backendai.scheduler.capacity import buckets
from backendai.scheduler.capacity.agent_states import AgentStates
from backendai.scheduler.demand import demand_of
from backendai.scheduler.explaining.shortfall import Refusal
from backendai.scheduler.place import place
from backendai.scheduler.snapshot import Rules
from tests.scheduler.worlds import a_session, an_agent, plan_of

SELECTIONS = ("concentrated", "dispersed", "round-robin")
SEEDS = range(40)


def a_world(seed):
    """Twenty agents, a third of them with accelerators, and more sessions than they can hold."""
    chance = Random(seed)
    agents = []
    for number in range(20):
        has = {"cpu": 8, "mem": "8g"} | ({"cuda.device": 2} if chance.random() < 0.3 else {})
        agents.append(an_agent(f"agent-{number:02}", has=has, used={"cpu": chance.randint(0, 4)}))
    sessions = []
    for number in range(80):
        asks = {"cpu": chance.randint(1, 4), "mem": f"{chance.randint(1, 6)}g"}
        asks |= {"cuda.device": 1} if chance.random() < 0.2 else {}
        sessions.append(a_session(f"session-{number}", asks, age=100 - number))
    return agents, sessions


@pytest.fixture
def in_pairs(monkeypatch):
    monkeypatch.setattr(buckets, "BLOCK", 2)
    monkeypatch.setattr(choose, "BLOCK", 2)
    monkeypatch.setattr(buckets, "_PATIENCE", 1)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_short_stretches_give_the_same_plans(request, selection):
    def plans():
        return [plan_of(*a_world(seed), selection=selection, sequence="drf") for seed in SEEDS]

    usual = plans()
    request.getfixturevalue("in_pairs")
    assert plans() == usual
    assert all(plan.placements and plan.waits for plan in usual)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_the_bound_of_a_stretch_is_never_less_than_what_an_agent_in_it_has(in_pairs, selection):
    for seed in SEEDS:
        agents, sessions = a_world(seed)
        states, booked = AgentStates(agents, Rules(selection=selection)), []
        for session in sessions:
            allocations = place(session, demand_of(session), states)
            booked += [] if isinstance(allocations, Refusal) else allocations
            check(states)
        for allocation in booked:
            states.undo(allocation.state, allocation.request, allocation.shares)
            check(states)


def check(states):
    for each in {state.bucket for state in states.all}:
        assert each.entries == sorted(state.entry for state in each.states) == [state.entry for state in each.states]
        for at, state in enumerate(each.states):
            assert states.packing.has_room(each.bounds[at // buckets.BLOCK], state.packed)
