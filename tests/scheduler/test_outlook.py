"""Never is told apart from not yet, and a wait for an agent from a wait for resources."""

from __future__ import annotations

import json

from tests.scheduler.worlds import a_session, an_agent, plan_of


def reason_for(agents, session=None, **asks):
    return plan_of(agents, [session or a_session(asks=asks)]).waits[0].reason


def test_it_says_that_a_group_has_no_agent():
    reason = reason_for([], cpu=1)
    assert (reason.code, reason.never) == ("no-agent", False)
    assert reason.message == "Resource group default has 0 agents: none is registered yet."


def test_it_says_never_when_no_registered_agent_is_big_enough():
    agents = [an_agent("a", has={"cpu": 8, "cuda.device": 2}), an_agent("b", has={"cpu": 4, "cuda.device": 8})]
    reason = reason_for(agents, **{"cpu": 6, "cuda.device": 8})
    assert (reason.code, reason.never) == ("bigger-than-any-agent", True)
    assert reason.message == (
        "No agent is big enough, even when empty: b comes closest (cpu: 6 asked, 4 available)."
    )  # fmt: skip
    assert reason.details == {"agent": "b", "shortages": [{"slot": "cpu", "wanted": "6", "free": "4"}]}


def test_it_does_not_say_never_while_a_lost_agent_could_hold_it():
    agents = [an_agent("a", has={"cpu": 8}), an_agent("b", has={"cpu": 64}, alive=False)]
    reason = reason_for(agents, cpu=32)
    assert (reason.code, reason.never) == ("no-agent-alive", False)
    assert "1 of 2 agents answer" in reason.message
    assert reason.details == {"agents": 2, "alive": 1, "silent": ["b"]}


def test_it_says_when_no_agent_answers():
    reason = reason_for([an_agent("a", alive=False), an_agent("b", alive=False)], cpu=1)
    assert (reason.code, reason.message) == ("no-agent-alive", "None of the 2 agents of the group answers.")


def test_it_says_when_those_that_are_big_enough_are_paused():
    agents = [an_agent("a", has={"cpu": 64}, schedulable=False), an_agent("b", has={"cpu": 8})]
    reason = reason_for(agents, cpu=32)
    assert (reason.code, reason.never) == ("no-agent-schedulable", False)
    assert reason.details == {"alive": 2, "schedulable": 1}


def test_it_names_the_architectures_that_there_are():
    agents = [an_agent("a", architecture="aarch64"), an_agent("b", architecture="aarch64")]
    reason = reason_for(agents, cpu=1)
    assert (reason.code, reason.never) == ("no-agent-with-architecture", True)
    assert reason.message == "The image needs architecture x86_64; 0 of 2 agents have it (offered: aarch64)."


def test_it_says_never_when_one_agent_may_not_run_that_many_kernels():
    reason = reason_for([an_agent(max_kernels=2)], a_session(kernels=[{"cpu": 1}] * 3))
    assert (reason.code, reason.never) == ("too-many-kernels", True)
    assert "3 kernels on one agent are too many" in reason.message
    assert reason.details == {"agent": "gpu-01", "wanted": 3, "limit": 2}


def test_it_says_never_when_a_cluster_has_more_kernels_than_all_empty_agents_hold():
    agents = [an_agent("a"), an_agent("b")]
    reason = reason_for(agents, a_session(kernels=[{"cuda.device": 3}] * 3, multi_node=True))
    assert (reason.code, reason.never) == ("bigger-than-all-agents", True)
    assert reason.message == (
        "3 kernels of at least cuda.device 3 are too many: the agents, all empty, hold at most 2."
    )  # fmt: skip


def test_it_says_never_when_a_cluster_asks_for_more_than_all_agents_have_together():
    agents = [an_agent("a"), an_agent("b")]
    session = a_session(kernels=[{"cuda.device": 4}, {"cuda.device": 4}, {"cuda.device": 1}], multi_node=True)
    reason = reason_for(agents, session)
    assert (reason.code, reason.never) == ("bigger-than-all-agents", True)
    assert "cuda.device: 9 asked, 8 available" in reason.message


def test_it_waits_for_a_lost_agent_that_a_cluster_needs():
    agents = [an_agent("a"), an_agent("b", alive=False)]
    reason = reason_for(agents, a_session(kernels=[{"cuda.device": 3}] * 2, multi_node=True))
    assert (reason.code, reason.never) == ("no-agent-alive", False)


def test_it_names_the_closest_agent_and_what_it_lacks():
    agents = [
        an_agent("a", used={"cuda.device": 4}),
        an_agent("b", used={"cuda.device": 1, "mem": "31g"}),
        an_agent("c", alive=False),
    ]
    reason = reason_for(agents, **{"cuda.device": 4, "mem": "2g"})
    assert (reason.code, reason.never) == ("insufficient-resources", False)
    assert reason.message == (
        "No agent has room for cuda.device 4, mem 2 GiB now: "
        "b comes closest (cuda.device: 4 asked, 3 available; mem: 2 GiB asked, 1 GiB available)."
    )
    assert reason.details["agents"] == {"alive": 1, "schedulable": 0, "architecture": 0, "max-kernels": 0, "slots": 2}
    assert json.loads(json.dumps(reason.details)) == reason.details


def test_it_does_not_hope_for_a_lost_agent_that_could_hold_no_kernel_of_the_cluster():
    agents = [an_agent("a", has={"cpu": 4, "mem": 1}), an_agent("b", has={"mem": 4}, alive=False)]
    session = a_session(kernels=[{"cpu": 1, "mem": 1}, {"cpu": 1}, {"cpu": 1, "mem": 1}], multi_node=True)
    reason = reason_for(agents, session)
    assert (reason.code, reason.never) == ("bigger-than-all-agents", True)
    assert "mem: 2 B asked, 1 B available" in reason.message
