"""Filters: each says in numbers why an agent is out."""

from __future__ import annotations

import pytest

from backendai.core.slots import Slots
from backendai.scheduler.agent_states import AgentState
from backendai.scheduler.feasible import cannot_start, why_not
from tests.scheduler.worlds import an_agent

ONE_CORE = Slots.parse({"cpu": 1})


def test_it_finds_nothing_against_an_agent_that_fits():
    assert why_not(an_agent(), ONE_CORE, 1, "x86_64") is None


def test_it_takes_any_agent_when_no_architecture_is_asked():
    assert why_not(an_agent(architecture="aarch64"), ONE_CORE, 1, "") is None


@pytest.mark.parametrize(
    ("agent", "code", "sentence"),
    [
        (an_agent(alive=False), "no-agent-alive", "Agent gpu-01 is not reachable."),
        (
            an_agent(schedulable=False),
            "no-agent-schedulable",
            "Agent gpu-01 takes no new sessions: an administrator paused it.",
        ),
        (
            an_agent(schedulable=False, fault="Kernels cannot reach /srv/data."),
            "agent-fault",
            "Agent gpu-01 cannot start sessions: Kernels cannot reach /srv/data.",
        ),
        (
            an_agent(architecture="aarch64"),
            "no-agent-with-architecture",
            "Agent gpu-01 is aarch64; the image needs x86_64.",
        ),
        (
            an_agent(kernels=3, max_kernels=4),
            "too-many-kernels",
            "Agent gpu-01 runs 3 kernels of at most 4; 2 more requested.",
        ),
        (
            an_agent(used={"cpu": "7.5", "mem": "31.5g"}),
            "insufficient-resources",
            "Agent gpu-01 has too little: 1 CPU core requested, 0.5 available; "
            "1 GiB of memory requested, 512 MiB available.",
        ),
    ],
)
def test_it_says_what_keeps_an_agent_from_taking_it(agent, code, sentence):
    reason = why_not(agent, Slots.parse({"cpu": 1, "mem": "1g"}), 2, "x86_64")
    assert (reason.code, reason.message) == (code, sentence)


def test_it_counts_the_kernels_that_come_and_not_only_those_that_run():
    assert why_not(an_agent(kernels=3, max_kernels=4), ONE_CORE, 1, "") is None
    assert why_not(an_agent(kernels=3, max_kernels=4), ONE_CORE, 2, "").code == "too-many-kernels"


def test_it_gives_shortages_as_exact_decimal_strings():
    reason = why_not(an_agent(used={"cpu": "7.5"}), ONE_CORE, 1, "x86_64")
    assert reason.details == {"agent": "gpu-01", "shortages": [{"slot": "cpu", "wanted": "1", "free": "0.5"}]}


def test_several_agents_that_cannot_start_sessions_are_counted_and_one_is_named():
    states = [AgentState(an_agent(f"gpu-0{number}", fault=f"Disk {number} is full."), 0) for number in (1, 2)]
    reason = cannot_start(states)
    assert reason.message == "2 agents cannot start sessions, such as gpu-01: Disk 1 is full."
