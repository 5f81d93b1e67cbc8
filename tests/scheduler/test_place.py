"""Where a session goes: the selections, the wishes of a session, whole or not at all."""

from __future__ import annotations

from uuid import uuid4

import pytest

from backendai.base.core.slots import Slots
from backendai.scheduler import rank
from backendai.scheduler.capacity.agent_state import AgentState
from backendai.scheduler.capacity.agent_states import AgentStates
from backendai.scheduler.demand import demand_keys, demand_of
from backendai.scheduler.explaining.shortfall import Refusal
from backendai.scheduler.place import place
from backendai.scheduler.selection import Selection, by_key
from backendai.scheduler.snapshot import DeviceView, Rules
from tests.scheduler.worlds import a_session, agents_of, an_agent, placement_of, plan_of, wait_of


def some_agents(names="abc", **changes):
    return [an_agent(name, **changes) for name in names]


def placed_on(agents, sessions, **rules):
    """The names of the agents that the sessions went to, in the order given; None for one that waits."""
    plan = plan_of(agents, sessions, **rules)
    placed = {placement.session_id for placement in plan.placements}
    return [agents_of(plan, each, agents)[0] if each.id in placed else None for each in sessions]


def a_queue(number, asks=None, **changes):
    return [a_session(f"s{turn}", asks, age=number - turn, **changes) for turn in range(number)]


# --- round-robin ---


def test_it_takes_the_agents_in_turn_by_name():
    assert placed_on(some_agents("cab"), a_queue(4), selection="round-robin") == ["a", "b", "c", "a"]


def test_it_goes_on_where_the_last_pass_ended():
    plan = plan_of(some_agents(), a_queue(2), selection="round-robin")
    assert plan.next_agent == "c"
    assert placed_on(some_agents(), a_queue(2), selection="round-robin", next_agent=plan.next_agent) == ["c", "a"]


def test_it_goes_on_with_the_next_name_when_that_agent_left():
    assert placed_on(some_agents("abd"), a_queue(2), selection="round-robin", next_agent="c") == ["d", "a"]
    assert placed_on(some_agents("ab"), a_queue(2), selection="round-robin", next_agent="c") == ["a", "b"]


def test_it_lets_an_agent_that_came_have_its_turn():
    assert placed_on(some_agents("abcd"), a_queue(3), selection="round-robin", next_agent="c") == ["c", "d", "a"]


def test_it_passes_over_agents_in_turn_that_have_no_room():
    agents = [an_agent("a"), an_agent("b", used={"cpu": 8}), an_agent("c")]
    assert placed_on(agents, a_queue(3), selection="round-robin") == ["a", "c", "a"]


def test_it_leaves_the_turn_as_it_was_when_nothing_was_placed():
    assert plan_of(some_agents(), [], selection="round-robin", next_agent="b").next_agent == "b"
    big = a_session(asks={"cpu": 8})
    agents = some_agents(used={"cpu": 1})
    assert plan_of(agents, [big], selection="round-robin", next_agent="b").next_agent == "b"


def test_it_leaves_the_turn_as_it_was_when_a_session_did_not_fit_as_a_whole():
    agents = some_agents(has={"cpu": 4}, used={"cpu": 1})
    session = a_session(kernels=[{"cpu": 3}, {"cpu": 2}, {"cpu": 3}, {"cpu": 3}], multi_node=True)
    assert plan_of(agents, [session], selection="round-robin", next_agent="b").next_agent == "b"


def test_it_leaves_the_turn_alone_under_another_selection():
    assert plan_of(some_agents(), a_queue(1), next_agent="b").next_agent == "b"


def test_it_wastes_no_accelerators_for_the_sake_of_the_turn():
    agents = [an_agent("a"), an_agent("b", has={"cpu": 8})]
    assert placed_on(agents, a_queue(3), selection="round-robin") == ["b", "b", "b"]


# --- a new selection ---


def test_it_ranks_by_the_function_of_a_new_selection(monkeypatch):
    def by_kernels(agent, slot_order):
        return (agent.kernels,)

    selection = Selection("by-kernels", "by the number of kernels", by_key(by_kernels))
    monkeypatch.setitem(rank.SELECTIONS, "by-kernels", selection)
    agents = [an_agent("a", kernels=1), an_agent("b", kernels=0), an_agent("c", kernels=2)]
    assert placed_on(agents, a_queue(3), selection="by-kernels") == ["b", "a", "b"]


# --- designated agents ---


def test_it_goes_to_a_designated_agent_only():
    agents = some_agents()
    here = frozenset({agents[1].id})
    assert placed_on(agents, a_queue(2, {"cpu": 5}, designated=here), sequence="lifo") == [None, "b"]


def test_it_takes_the_best_of_several_designated_agents():
    agents = [an_agent("a"), an_agent("b", used={"cpu": 1}), an_agent("c", used={"cpu": 3})]
    here = frozenset({agents[0].id, agents[1].id})
    assert placed_on(agents, a_queue(1, designated=here)) == ["b"]
    assert placed_on(agents, a_queue(1, designated=here), selection="dispersed") == ["a"]


def test_it_names_the_designated_agents_that_lack_room():
    agents = [an_agent("a"), an_agent("b", used={"cpu": 7}), an_agent("c", used={"cpu": 8})]
    session = a_session(asks={"cpu": 2}, designated=frozenset({agents[1].id, agents[2].id}))
    reason = plan_of(agents, [session]).waits[0].reason
    assert reason.code == "insufficient-resources"
    assert reason.message == (
        "No designated agent has room for 2 CPU cores now: b comes closest (2 CPU cores requested, 1 available)."
    )  # fmt: skip
    assert reason.details["designated"] == ["b", "c"]
    assert reason.details["agents"]["designated"] == 1


def test_it_says_that_the_designated_agents_do_not_answer():
    agents = [an_agent("a"), an_agent("b", alive=False)]
    session = a_session(designated=frozenset({agents[1].id}))
    refusal = place(session, demand_of(session), AgentStates(agents, Rules()))
    assert refusal.reason.code == "no-agent-alive"
    assert refusal.reason.message == "Agent b is not reachable."
    assert [(step.step, step.message) for step in refusal.steps] == [
        ("designated", "1 of 2 agents ruled out."), ("architecture", "0 of 1 agents ruled out."),
        ("alive", "1 of 1 agents ruled out."),
    ]  # fmt: skip


def test_it_says_that_a_designated_agent_is_not_in_the_group():
    unknown = uuid4()
    session = a_session(designated=frozenset({unknown}))
    refusal = place(session, demand_of(session), AgentStates(some_agents(), Rules()))
    assert (refusal.reason.code, refusal.reason.never) == ("designated-agent-unknown", True)
    assert str(unknown) in refusal.reason.message


# --- images that are on some agents only ---


def test_it_goes_where_the_image_is():
    agents = [an_agent("a"), an_agent("b", images=frozenset({"mine:1"})), an_agent("c")]
    assert placed_on(agents, a_queue(1, node_image="mine:1")) == ["b"]


def test_it_goes_where_the_image_is_when_many_agents_have_it():
    agents = [
        an_agent(f"agent-{n:03}", has={"cpu": 1}, images=frozenset({"mine:1"} if n else ())) for n in range(70)
    ]  # fmt: skip
    placed = placed_on(agents, a_queue(70, node_image="mine:1"))
    assert placed == [f"agent-{n:03}" for n in range(1, 70)] + [None]


def test_it_says_when_no_agent_has_the_image():
    agents = some_agents()
    session = a_session(node_image="mine:1")
    refusal = place(session, demand_of(session), AgentStates(agents, Rules()))
    assert refusal.reason.code == "image-not-on-agent"
    assert refusal.reason.message == (
        "Agents a, b, c do not have image mine:1, and it cannot be pulled."
    )  # fmt: skip
    assert refusal.reason.details["agents"]["node-image"] == 3


# --- companions ---


@pytest.mark.parametrize("selection", ["concentrated", "dispersed", "round-robin"])
def test_it_spreads_a_launch_over_the_agents(selection):
    placed = placed_on(some_agents(), a_queue(6, launch="sweep", placement="spread"), selection=selection)
    assert sorted(placed[:3]) == sorted(placed[3:]) == ["a", "b", "c"]


@pytest.mark.parametrize("selection", ["concentrated", "dispersed", "round-robin"])
def test_it_packs_a_launch_on_one_agent_while_it_has_room(selection):
    placed = placed_on(some_agents(), a_queue(6, {"cpu": 2}, launch="sweep", placement="pack"), selection=selection)
    assert len(set(placed[:4])) == 1
    assert len(set(placed)) == 2


def test_it_counts_companions_that_run_already():
    agents = [an_agent("a", companions={"sweep": 2}), an_agent("b", companions={"sweep": 1}), an_agent("c", kernels=9)]
    spread = a_queue(2, launch="sweep", placement="spread")
    assert placed_on(agents, spread, selection="dispersed") == ["c", "b"]
    assert placed_on(agents, a_queue(1, launch="sweep", placement="pack")) == ["a"]
    assert placed_on(agents, a_queue(1, launch="other", placement="spread")) == ["a"]


def test_it_wastes_no_accelerators_to_spread_a_launch():
    agents = [an_agent("a"), an_agent("b", has={"cpu": 8}), an_agent("c")]
    assert placed_on(agents, a_queue(3, launch="sweep", placement="spread")) == ["b", "b", "b"]


def test_it_spreads_the_kernels_of_a_session_that_belongs_to_no_launch():
    session = a_session(kernels=[{"cpu": 1}] * 3, multi_node=True, placement="spread")
    agents = some_agents()
    assert sorted(agents_of(plan_of(agents, [session]), session, agents)) == ["a", "b", "c"]


# --- whole or not at all ---


def test_it_leaves_no_trace_of_a_session_that_did_not_fit_as_a_whole():
    devices = tuple(DeviceView(f"g{n}", "cuda.device", 1000) for n in range(2))
    agents = [an_agent(name, has={"cpu": 4, "cuda.device": 2}, devices=devices) for name in "ab"]
    session = a_session(
        kernels=[{"cuda.device": 1}] * 5, multi_node=True, launch="sweep", placement="pack"
    )  # fmt: skip
    states = AgentStates(agents, Rules())
    before = [(dict(state.free), state.kernels, dict(state.book.available("cuda.device"))) for state in states.all]
    refusal = place(session, demand_of(session), states)
    assert isinstance(refusal, Refusal)
    assert (refusal.reason.details["placed"], refusal.reason.details["kernels"]) == (4, 5)
    assert [
        (dict(state.free), state.kernels, dict(state.book.available("cuda.device"))) for state in states.all
    ] == before  # fmt: skip
    next_one = a_session("next", {"cuda.device": 2}, launch="sweep", placement="pack")
    assert [allocation.state.name for allocation in place(next_one, demand_of(next_one), states)] == ["a"]


def test_it_gives_the_kernels_of_a_session_over_several_agents_devices_of_their_agent():
    devices = tuple(DeviceView(f"g{n}", "cuda.device", 1000) for n in range(2))
    agents = [an_agent(name, has={"cpu": 4, "cuda.device": 2}, devices=devices) for name in "ab"]
    session = a_session(kernels=[{"cuda.device": 2}, {"cpu": 1}, {"cuda.device": 2}], multi_node=True)
    placement = placement_of(plan_of(agents, [session]), session)
    first, second, third = session.kernels
    assert placement.kernels[first.id] != placement.kernels[third.id]
    whole = {"cuda.device": {"g0": 1000, "g1": 1000}}
    assert placement.devices == {first.id: whole, third.id: whole}
    assert second.id in placement.kernels


def test_it_counts_the_kernels_that_are_about_to_come():
    agents = [an_agent("a", kernels=1, max_kernels=3), an_agent("b", kernels=2, max_kernels=3)]
    pair = a_session("pair", kernels=[{"cpu": 1}] * 2, age=2)
    another = a_session("another", kernels=[{"cpu": 1}] * 2, age=1)
    plan = plan_of(agents, [pair, another])
    assert agents_of(plan, pair, agents) == ["a", "a"]
    reason = wait_of(plan, another).reason
    assert reason.message == "No agent takes 2 more kernels now: b runs 2 of at most 3."
    assert reason.details["agents"]["max-kernels"] == 2


def test_it_refuses_an_amount_that_no_device_gives():
    session = a_session(asks={"cuda.shares": "0.505"})
    refusal = place(session, demand_of(session), AgentStates([an_agent(has={"cuda.shares": 4})], Rules()))
    assert (refusal.reason.code, refusal.reason.never) == ("invalid-amount", True)
    assert refusal.steps[-1].code == "invalid-amount"


# --- what tells two sessions apart ---


@pytest.mark.parametrize(
    "changes",
    [{"asks": {"cpu": 2}}, {"architectures": ["aarch64"]}, {"designated": frozenset({uuid4()})}, {"node_image": "x"}],
)
def test_it_tells_sessions_apart_that_other_agents_suit(changes):
    plain, other = demand_keys([a_session(), a_session(**changes)])
    assert plain != other


def test_it_does_not_tell_sessions_apart_by_what_decides_no_refusal():
    later = a_session("other", age=5, launch="sweep", placement="pack")
    plain, *alike = demand_keys([a_session(), later, a_session(avoid_agents=frozenset({uuid4()}))])
    assert alike == [plain, plain]
    several = a_session(kernels=[{"cpu": 1}] * 2, multi_node=True)
    packed = a_session(kernels=[{"cpu": 1}] * 2, multi_node=True, placement="pack", launch="sweep")
    assert len(set(demand_keys([several, packed]))) == 2


# --- looking into the future ---


def test_it_books_nothing_on_the_agents_of_a_copy():
    session = a_session(asks={"cpu": 8, "cuda.device": 2})
    devices = tuple(DeviceView(f"g{n}", "cuda.device", 1000) for n in range(4))
    states = AgentStates([an_agent(devices=devices)], Rules(selection="round-robin"))
    copy = states.copy()
    assert not isinstance(place(session, demand_of(session), copy), Refusal)
    assert isinstance(place(session, demand_of(session), copy), Refusal)
    assert not isinstance(place(session, demand_of(session), states), Refusal)


def test_a_copy_knows_of_its_agents_all_that_is_known_here():
    agents = [an_agent(name, max_kernels=4, used={"cpu": at}) for at, name in enumerate("abc")]
    agents.append(an_agent("d", devices=(DeviceView("g0", "cuda.device", 1000),)))
    agents.append(an_agent("e", alive=False))
    states = AgentStates(agents, Rules())
    session = a_session(asks={"cpu": 2})
    assert not isinstance(place(session, demand_of(session), states), Refusal)
    copy = states.copy()
    own = {"bucket", "book"}  # what copies must not share
    for here, there in zip(states.all, copy.all, strict=True):
        known = [name for name in AgentState.__slots__ if name not in own]
        assert here.free == there.free  # asked for first: what is written down is subtracted now
        assert {name: getattr(here, name) for name in known} == {name: getattr(there, name) for name in known}
        assert (here.bucket is None) == (there.bucket is None)
        if here.bucket is not None:
            assert there.bucket is not here.bucket and there.bucket.entries == here.bucket.entries
            assert there.bucket.states[here.bucket.states.index(here)] is there
        assert (here.book is None) == (there.book is None)
        assert here.book is None or there.book is not here.book
    assert [state.name for state in copy.limited] == ["a", "b", "c"] and copy.limited[0] is copy.all[0]


def test_it_has_room_again_after_a_running_session_gave_back_what_it_held():
    devices = tuple(DeviceView(f"g{n}", "cuda.device", 1000, 1000) for n in range(4))
    agent = an_agent(used={"cpu": 8, "cuda.device": 4}, kernels=1, max_kernels=1, devices=devices)
    states = AgentStates([agent], Rules())
    session = a_session(asks={"cpu": 2, "cuda.device": 2})
    assert isinstance(place(session, demand_of(session), states), Refusal)
    states.give_back(uuid4(), Slots.parse({"cpu": 9}), 9)
    assert isinstance(place(session, demand_of(session), states), Refusal)
    states.give_back(agent.id, Slots.parse({"cpu": 8, "cuda.device": 2}), 1)
    allocations = place(session, demand_of(session), states)
    assert allocations[0].shares == [{"cuda.device": {"g0": 1000, "g1": 1000}}]
