"""Filters: each says in numbers why an agent is out."""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest

from backendai.base.core.slots import Slots
from backendai.scheduler.capacity.agent_states import AgentStates
from backendai.scheduler.capacity.filters import FILTERS, STATE_FILTERS, why_not
from backendai.scheduler.demand import demand_of
from backendai.scheduler.explaining.shortfall import refusal_of
from backendai.scheduler.plan import Reason
from backendai.scheduler.snapshot import AgentView, DeviceView, Rules, StorageNeed
from tests.scheduler.worlds import NOW, a_session, an_agent, plan_of

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


def _devices(*taken: int) -> tuple[DeviceView, ...]:
    return tuple(DeviceView(f"GPU-{number}", "cuda.device", 1000, of) for number, of in enumerate(taken))


WANTED = {"cpu": 1, "cuda.device": 1}
NEED = StorageNeed(frozenset({"disk"}), (("data", "disk"),))
HERE = {"images": frozenset({"mine:1"}), "storage": frozenset({"disk"})}
# For each filter: what is odd about an agent that fails it, and its word in the sentence.
ODD: dict[str, tuple[dict[str, Any], str]] = {
    "designated": ({}, "None of the designated agents is in this group"),
    "architecture": ({"architecture": "aarch64"}, "is aarch64; the image needs x86_64"),
    "containers": ({"is_native": True, "images": frozenset()}, "has no containers, which image mine:1 needs"),
    "disk": ({"low_disk": True, "images": frozenset()}, "is short of disk space and pulls nothing"),
    "node-image": ({"images": frozenset()}, "does not have image mine:1, and it cannot be pulled"),
    "storage": ({"storage": frozenset()}, "Folder data is on disk, which"),
    "cluster-network": ({"joins": False}, "cannot join a network"),
    "alive": ({"alive": False}, "is not reachable"),
    "schedulable": ({"schedulable": False}, "takes no new sessions: an administrator paused it"),
    "fault": ({"schedulable": False, "fault": "Its disk is full."}, "cannot start sessions: Its disk is full."),
    "draining": (
        {"schedulable": False, "draining": True, "drain_ends_at": NOW + timedelta(hours=7, minutes=43)},
        "is being drained and takes no new sessions; those on it end by 2025-06-02 16:43 UTC.",
    ),
    "max-kernels": ({"kernels": 4, "max_kernels": 4}, "{} runs 4 of at most 4"),
    "slots": ({"used": {"cpu": 8}}, "{} comes closest (1 CPU core requested, 0 available)"),
    "devices": ({"devices": _devices(500, 500)}, "{} comes closest (1 GPU requested, 1 free in total, at most 0.5"),
}  # fmt: skip
AGENTS = sorted(set(ODD) - {"designated"})
ROOM = {"max-kernels", "slots", "devices"}
STATE = {each.step for each in STATE_FILTERS}


def odd_agent(name: str, step: str) -> AgentView:
    return an_agent(name, **(HERE | {"has": {"cpu": 8, "cuda.device": 2}} | ODD[step][0]))


def why(agents: list[AgentView], *, joins: bool) -> Reason:
    session = a_session(
        kernels=[WANTED] * (2 if joins else 1),
        node_images=["mine:1"] * (2 if joins else 1),
        storage=NEED,
        multi_node=joins,
    )
    demand = demand_of(session)
    return refusal_of(demand.requests[0], AgentStates(agents, Rules()), 0, 1).reason


def test_every_filter_has_its_word():
    assert set(ODD) == {each.step for each in FILTERS}


@pytest.mark.parametrize("step", AGENTS)
def test_a_cause_alone_is_told(step):
    reason = why([odd_agent("a", step)], joins=step == "cluster-network")
    assert ODD[step][1].format("a") in reason.message
    assert step_of(reason) == step


@pytest.mark.parametrize("step", sorted(set(AGENTS) - ROOM - {"storage"}))
def test_a_cause_of_several_agents_names_them_in_the_plural(step):
    message = why([odd_agent(name, step) for name in "abcd"], joins=step == "cluster-network").message
    assert re.match(r"Agents a, b, c and others (are|do|have|take|cannot) |4 agents cannot ", message), message


@pytest.mark.parametrize(("one", "other"), list(combinations(AGENTS, 2)))
def test_two_agents_with_different_causes_are_both_told(one, other):
    reason = why([odd_agent("a", one), odd_agent("b", other)], joins="cluster-network" in (one, other))
    told = {step: ODD[step][1].format(name) in reason.message for step, name in ((one, "a"), (other, "b"))}
    room = ROOM & {one, other}
    if not room:
        assert all(told.values()), reason.message
    elif len(room) == 1:  # the agent that only lacks room is named, and one that is away; not one of another kind
        assert told[room.pop()], reason.message
        assert {one, other} & STATE == set() or all(told.values()), reason.message
    else:
        assert any(told.values()), reason.message


def step_of(reason: Reason) -> str:
    counts: Any = reason.details["agents"]
    return next(step for step, number in counts.items() if number)


@pytest.mark.parametrize("step", sorted(STATE))
def test_agents_that_could_hold_it_if_they_were_open_are_told_with_their_cause(step):
    big = an_agent("big", **(HERE | {"has": {"cpu": 32}} | ODD[step][0]))
    session = a_session(asks={"cpu": 16})
    for small, rest in ((0, ""), (1, " The agent that takes sessions"), (2, " The 2 agents that take sessions")):
        agents = [big, *(an_agent(f"small-{number}") for number in range(small))]
        reason = plan_of(agents, [session]).waits[0].reason
        assert f"Agent big {ODD[step][1]}" in reason.message
        assert reason.message.endswith(f"{rest} cannot hold it, even when empty.") or not rest
        assert not reason.never


def test_a_drained_agent_and_one_without_containers_are_both_named():
    drained = odd_agent("local", "draining")
    native = odd_agent("native-2", "containers")
    message = plan_of([drained, native], [a_session(asks={"cpu": 1}, node_image="mine:1")]).waits[0].reason.message
    assert message == (
        "Agent local is being drained and takes no new sessions; those on it end by 2025-06-02 16:43 UTC. "
        "Agent native-2 has no containers, which image mine:1 needs."
    )
