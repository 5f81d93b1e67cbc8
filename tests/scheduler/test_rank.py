"""Which of the agents that fit is taken."""

from __future__ import annotations

import pytest

from backendai.scheduler.rank import SELECTIONS, accelerators_in, selection_named, whole_slot_order
from tests.scheduler.worlds import a_session, agents_of, an_agent, plan_of


def chosen(agents, selection, **asks):
    session = a_session(asks=asks)
    return agents_of(plan_of(agents, [session], selection=selection), session, agents)[0]


def test_it_fills_the_fullest_agent_first_when_concentrated():
    agents = [an_agent("a"), an_agent("b", used={"cpu": 4})]
    assert chosen(agents, "concentrated", **{"cpu": 2, "cuda.device": 1}) == "b"


def test_it_takes_the_emptiest_agent_first_when_dispersed():
    agents = [an_agent("a", used={"cpu": 4}), an_agent("b")]
    assert chosen(agents, "dispersed", **{"cpu": 2, "cuda.device": 1}) == "b"


@pytest.mark.parametrize("selection", ["concentrated", "dispersed"])
def test_it_keeps_sessions_without_accelerators_off_agents_that_have_some(selection):
    agents = [an_agent("a"), an_agent("b", has={"cpu": 8, "mem": "32g"}), an_agent("c")]
    assert chosen(agents, selection, cpu=2, mem="1g") == "b"


def test_it_does_not_mind_accelerators_that_are_all_taken():
    agents = [an_agent("a", used={"cuda.device": 4}), an_agent("b", has={"cpu": 16})]
    assert chosen(agents, "concentrated", cpu=2) == "a"


def test_it_looks_at_the_slots_in_the_order_of_the_group():
    agents = [an_agent("a", used={"cpu": 6, "mem": "1g"}), an_agent("b", used={"cpu": 1, "mem": "16g"})]
    session = a_session(asks={"cpu": 1, "mem": "1g", "cuda.device": 1})
    by_cpu = plan_of(agents, [session], slot_order=("cpu", "mem"))
    by_memory = plan_of(agents, [session], slot_order=("mem", "cpu"))
    assert agents_of(by_cpu, session, agents) == ["a"]
    assert agents_of(by_memory, session, agents) == ["b"]


@pytest.mark.parametrize("selection", ["concentrated", "dispersed"])
def test_it_takes_the_first_name_among_equals(selection):
    agents = [an_agent("c"), an_agent("a"), an_agent("b")]
    assert chosen(agents, selection, cpu=1) == "a"


def test_it_ranks_anew_after_each_placement():
    agents = [an_agent("a"), an_agent("b")]
    sessions = [a_session(name, {"cpu": 2, "cuda.device": 1}, age=9 - turn) for turn, name in enumerate("1234")]
    spread = plan_of(agents, sessions, selection="dispersed")
    filled = plan_of(agents, sessions, selection="concentrated")
    assert [agents_of(spread, session, agents) for session in sessions] == [["a"], ["b"], ["a"], ["b"]]
    assert [agents_of(filled, session, agents) for session in sessions] == [["a"]] * 4


def test_it_ranks_an_agent_that_shrank_below_what_runs_on_it():
    agents = [an_agent("a", has={"cpu": 2, "mem": "1g"}, used={"cpu": 4})]
    assert chosen(agents, "concentrated", mem="1g") == "a"
    assert chosen(agents, "dispersed", mem="1g") == "a"


def test_it_knows_the_accelerators_that_are_free():
    free = {"cpu": 1, "mem": 1, "cuda.device": 2, "tpu": 0, "rocm.device": 3}
    assert accelerators_in(free) == {"cuda.device", "rocm.device"}


def test_it_names_the_selections_that_there_are_when_asked_for_another():
    with pytest.raises(ValueError, match="concentrated, dispersed"):
        selection_named("nearest")


def test_it_offers_every_selection_with_a_label():
    assert list(SELECTIONS) == ["concentrated", "dispersed", "round-robin"]
    assert all(selection.label for selection in SELECTIONS.values())


@pytest.mark.parametrize(
    ("named", "whole"),
    [
        (("cuda.device", "cuda.shares", "cpu", "mem"), ("cuda.device", "rocm.device", "tpu", "cpu", "mem")),
        ((), ("cuda.device", "rocm.device", "tpu", "cpu", "mem")),
        (("tpu",), ("tpu", "cuda.device", "rocm.device", "cpu", "mem")),
        (("mem", "tpu"), ("mem", "tpu", "cuda.device", "rocm.device", "cpu")),
        (("mem", "cpu"), ("mem", "cpu", "cuda.device", "rocm.device", "tpu")),
        (("tpu", "mem"), ("tpu", "cuda.device", "rocm.device", "mem", "cpu")),
    ],
)
def test_it_puts_slots_that_the_order_does_not_name_before_a_closing_cpu_and_memory(named, whole):
    assert whole_slot_order(named, {"cpu", "mem", "tpu", "rocm.device", "cuda.device"}) == whole


def test_it_spares_an_accelerator_that_the_order_does_not_name():
    agents = [an_agent("a", has={"cpu": 2, "tpu": 4}), an_agent("b", has={"cpu": 8, "tpu": 2})]
    assert chosen(agents, "concentrated", cpu=1, tpu=1) == "b"
    assert chosen(agents, "dispersed", cpu=1, tpu=1) == "a"
