"""The agents that are found by bucket, packing and tree are those that a plain search over all agents finds."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backendai.base.core.slots import Slots
from backendai.scheduler.capacity.agent_state import AgentState
from backendai.scheduler.capacity.agent_states import AgentStates
from backendai.scheduler.capacity.capacity_tree import CapacityTree
from backendai.scheduler.capacity.feasible import distance
from backendai.scheduler.capacity.filters import FILTERS, first_obstacle
from backendai.scheduler.demand import Request, demand_of
from backendai.scheduler.explaining.shortfall import Refusal
from backendai.scheduler.place import place
from backendai.scheduler.rank import accelerators_in, whole_slot_order
from backendai.scheduler.snapshot import DeviceView, Rules
from tests.effort import examples
from tests.scheduler.worlds import a_session, an_agent

many = settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
NAMES = [f"agent-{number}" for number in range(6)]
SLOTS = ("cpu", "mem", "cuda.device", "cuda.shares", "tpu")


@st.composite
def agents_with_devices(draw):
    agents = []
    for name in NAMES[: draw(st.integers(1, 6))]:
        has = draw(
            st.fixed_dictionaries({"cpu": st.integers(0, 6)}, optional={s: st.integers(1, 4) for s in SLOTS[1:]})
        )
        devices = []
        if draw(st.booleans()):
            for slot in ("cuda.device", "cuda.shares"):
                devices += [DeviceView(f"{slot}-{n}", slot, 1000) for n in range(has.get(slot, 0))]
        agents.append(
            an_agent(
                name,
                has=has,
                devices=tuple(devices),
                alive=draw(st.sampled_from([True, True, True, False])),
                kernels=draw(st.integers(0, 2)),
                max_kernels=draw(st.sampled_from([None, None, 3, 5])),
                architecture=draw(st.sampled_from(["x86_64", "x86_64", "aarch64"])),
                images=frozenset(draw(st.sets(st.sampled_from(["mine:1", "mine:2"])))),
                companions=draw(st.sampled_from([{}, {"sweep": 1}, {"sweep": 2, "other": 1}])),
            )
        )
    return agents


@st.composite
def wishful_sessions(draw):
    ids = st.sets(st.sampled_from([an_agent(name).id for name in NAMES]), max_size=3)
    amounts = st.fixed_dictionaries(
        {"cpu": st.integers(0, 3)},
        optional={
            "mem": st.integers(1, 2),
            "cuda.device": st.integers(1, 2),
            "cuda.shares": st.sampled_from(["0.25", "0.5", "0.7", "1.5"]),
            "tpu": st.integers(1, 2),
        },
    )
    sessions = []
    for number in range(draw(st.integers(1, 10))):
        kernels = draw(st.lists(amounts, min_size=1, max_size=2))
        sessions.append(
            a_session(
                f"s{number}",
                kernels=kernels,
                architectures=[draw(st.sampled_from(["", "x86_64", "x86_64"]))] * len(kernels),
                designated=frozenset(draw(st.one_of(st.just(()), st.just(()), ids))),
                avoid_agents=frozenset(draw(st.one_of(st.just(()), ids))),
                node_image=draw(st.sampled_from(["", "", "mine:1"])),
                placement=draw(st.sampled_from(["", "spread", "pack"])),
                launch=draw(st.sampled_from(["sweep", "other"])),
            )
        )
    return sessions


some_rules = st.builds(
    Rules,
    selection=st.sampled_from(["concentrated", "dispersed", "round-robin"]),
    slot_order=st.permutations(SLOTS).flatmap(lambda order: st.integers(0, 5).map(lambda n: tuple(order[:n]))),
    next_agent=st.sampled_from(["", *NAMES, "agent-33", "zeta"]),
    fill_devices=st.booleans(),
    allow_fragmentation=st.booleans(),
)


class PlainSearch:
    """The rules in the plainest words: look at every agent, sort, take the first."""

    def __init__(self, agents, rules):
        self.states = [
            AgentState(agent, order, rules) for order, agent in enumerate(sorted(agents, key=lambda a: a.name))
        ]
        self.companions = {agent.name: dict(agent.companions) for agent in agents}
        self.rules, self.turn = rules, rules.next_agent
        self.slot_order = whole_slot_order(rules.slot_order, {name for state in self.states for name in state.free})

    def best(self, request, session):
        able = [state for state in self.states if first_obstacle(state, request) is None]
        return min(able, key=lambda state: self._key(state, request, session), default=None)

    def _key(self, state, request, session):
        beside = self.companions[state.name].get(session.launch, 0)
        liking = {"spread": beside, "pack": -beside, "": 0}[session.placement]
        left = [max(state.free.get(name, 0), 0) for name in self.slot_order]
        if self.rules.selection == "dispersed":
            left = [-amount for amount in left]
        if self.rules.selection == "round-robin":
            left = [state.name < self.turn]
        wasted = len(accelerators_in(state.free) - set(request.names))
        return state.id in session.avoid_agents, wasted, liking, left, state.name

    def book(self, state, request, session):
        state.take_devices(state.shares_for(request))
        state.take(request)
        beside = self.companions[state.name]
        beside[session.launch] = beside.get(session.launch, 0) + request.kernels
        self.turn = self.states[(state.order + 1) % len(self.states)].name


@many
@given(agents_with_devices(), wishful_sessions(), some_rules)
def test_it_takes_the_agent_of_a_plain_search_under_every_selection(agents, sessions, rules):
    states, plain = AgentStates(agents, rules), PlainSearch(agents, rules)
    for session in sessions:
        demand = demand_of(session)
        (request,) = demand.requests
        expected = plain.best(request, session)
        outcome = place(session, demand, states)
        if isinstance(outcome, Refusal):
            assert expected is None
            assert_complete(outcome, request, plain)
            continue
        (allocation,) = outcome
        assert expected is not None
        assert allocation.state.name == expected.name
        plain.book(expected, request, session)
        assert allocation.state.free == expected.free
        assert allocation.state.kernels == expected.kernels


def assert_complete(refusal, request, plain):
    """The refusal counts what each filter removed, and names an agent than which none is closer."""
    removed = {}
    for state in plain.states:
        step = first_obstacle(state, request).step
        removed[step] = removed.get(step, 0) + 1
    counts = refusal.reason.details["agents"]
    assert {step: count for step, count in counts.items() if count} == removed
    last = [each.step for each in FILTERS if each.step in removed][-1]
    assert refusal.steps[-1].step == last
    assert refusal.steps[-1].code == refusal.reason.code
    assert [step.passed for step in refusal.steps] == [True] * (len(refusal.steps) - 1) + [False]
    if last == "slots":
        short = [state for state in plain.states if first_obstacle(state, request).step == "slots"]
        closest = min(short, key=lambda state: (distance(state, request), state.name))
        assert refusal.reason.details["agent"] == closest.name


@many
@given(agents_with_devices(), wishful_sessions(), some_rules)
def test_it_restores_everything_when_what_was_booked_is_undone(agents, sessions, rules):
    states = AgentStates(agents, rules)
    first, *others = (session._replace(multi_node=True) for session in sessions)
    place(first, demand_of(first), states)
    before = picture(states)
    for session in others:
        later = states.copy()
        outcome = place(session, demand_of(session), later)
        if isinstance(outcome, Refusal):
            assert picture(later) == before
            assert later.next_agent == states.next_agent
    assert picture(states) == before


def picture(states):
    return [
        (
            {name: amount for name, amount in state.free.items() if amount},
            state.kernels,
            state.packed,
            state.entry,
            state.book and {slot: dict(state.book.available(slot)) for slot in state.book.slots},
            state.bucket and (state.bucket.kinds, state.bucket.states.index(state)),
        )
        for state in states.all
    ]


@many
@given(
    st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=9, max_size=40),
    st.lists(st.integers(1, 12), min_size=3, max_size=3),
    st.lists(st.tuples(st.integers(0, 39), st.integers(-3, 12)), min_size=2, max_size=10),
)
def test_it_finds_the_closest_agent_after_agents_shrank_and_grew(amounts, wanted, changes):
    slots = ("cpu", "mem", "cuda.device")
    states = [
        AgentState(an_agent(f"a{order:02}", has=dict(zip(slots, each, strict=True))), order)
        for order, each in enumerate(amounts)
    ]
    request = Request(Slots.parse(dict(zip(slots, wanted, strict=True))), 1, "")
    tree = CapacityTree(states)
    for index, change in [(0, 0), *changes]:
        state = states[index % len(states)]
        state.free["cpu"] = state.free.get("cpu", 0) + change * 1000
        (tree.grown if change > 0 else tree.shrunk)(state)
        expected = min((distance(state, request), state.order) for state in states)
        found = tree.closest(request, lambda state: True)
        assert (found[0], found[1].order) == expected
