"""A pass over one resource group, rule by rule."""

from __future__ import annotations

from datetime import timedelta

import pytest

from backendai.scheduler.snapshot import ImageBuild
from tests.scheduler.worlds import NOW, a_session, agents_of, an_agent, plan_of, wait_of


def test_it_starts_a_session_that_fits():
    agent, session = an_agent(), a_session()
    plan = plan_of([agent], [session])
    assert [placement.kernels for placement in plan.placements] == [{session.kernels[0].id: agent.id}]
    assert plan.waits == ()


def test_it_counts_what_it_placed_earlier_in_the_same_pass():
    first, second = a_session("first", {"cpu": 5}, age=2), a_session("second", {"cpu": 5}, age=1)
    plan = plan_of([an_agent()], [second, first])
    assert [placement.session_id for placement in plan.placements] == [first.id]
    assert "5 CPU cores requested, 3 available" in wait_of(plan, second).reason.message


def test_it_puts_all_kernels_of_a_single_node_session_on_one_agent():
    agents = [an_agent("a", has={"cpu": 3}), an_agent("b", has={"cpu": 4})]
    session = a_session(kernels=[{"cpu": 2}, {"cpu": 2}])
    assert agents_of(plan_of(agents, [session]), session, agents) == ["b", "b"]


def test_it_does_not_split_a_single_node_session():
    agents = [an_agent("a", has={"cpu": 3}), an_agent("b", has={"cpu": 3})]
    plan = plan_of(agents, [a_session(kernels=[{"cpu": 2}, {"cpu": 2}])])
    assert plan.placements == ()
    assert plan.waits[0].reason.code == "bigger-than-any-agent"


def test_it_spreads_a_multi_node_session_over_agents_when_one_is_too_small():
    agents = [an_agent("a", has={"cpu": 3}), an_agent("b", has={"cpu": 3})]
    session = a_session(kernels=[{"cpu": 2}, {"cpu": 2}], multi_node=True)
    assert sorted(agents_of(plan_of(agents, [session]), session, agents)) == ["a", "b"]


def test_it_gives_back_what_a_multi_node_session_had_booked_when_it_does_not_fit_as_a_whole():
    agents = [an_agent("a", has={"cpu": 4}), an_agent("b", has={"cpu": 4}, used={"cpu": 4})]
    cluster = a_session("cluster", kernels=[{"cpu": 3}, {"cpu": 3}], multi_node=True, age=1)
    small = a_session("small", {"cpu": 4}, age=2)
    plan = plan_of(agents, [cluster, small], sequence="lifo")
    assert agents_of(plan, small, agents) == ["a"]
    reason = wait_of(plan, cluster).reason
    assert reason.message.startswith("1 of 2 kernels found an agent, and all must start together.")
    assert (reason.details["placed"], reason.details["kernels"]) == (1, 2)


def test_it_tries_the_largest_kernel_first_before_it_gives_up():
    agents = [an_agent("a", has={"cpu": 4}), an_agent("b", has={"cpu": 2})]
    session = a_session(kernels=[{"cpu": 2}, {"cpu": 4}], multi_node=True)
    plan = plan_of(agents, [session], selection="dispersed")
    assert agents_of(plan, session, agents) == ["b", "a"]


def test_it_holds_everybody_back_behind_a_session_that_lacks_resources_under_fifo():
    agent = an_agent(used={"cuda.device": 2})
    big, small = a_session("big", {"cuda.device": 4}, age=2), a_session("small", {"cpu": 1}, age=1)
    plan = plan_of([agent], [small, big])
    assert plan.placements == ()
    assert [wait.position for wait in plan.waits] == [1, 2]
    behind = wait_of(plan, small).reason
    assert behind.code == "behind-in-queue"
    strictly = "(group default runs sessions strictly in order)."
    assert behind.message == f"Queued behind a session that does not fit yet {strictly}"
    assert behind.aside == "That session requests 4 GPUs."
    assert behind.aside_details == {"blocker": str(big.id), "blocker_reason": "insufficient-resources"}


def test_what_is_kept_of_a_wait_stays_the_same_when_another_one_is_the_first_in_line():
    agent = an_agent(used={"cuda.device": 2})
    big, other = a_session("big", {"cuda.device": 4}, age=3), a_session("other", {"cuda.device": 3}, age=2)
    small = a_session("small", {"cpu": 1}, age=1)
    before, after = (wait_of(plan_of([agent], these), small).reason for these in ([big, other, small], [other, small]))
    assert (before.message, before.details) == (after.message, after.details)
    assert before.aside != after.aside


def test_it_says_that_the_order_is_strict_only_where_nobody_ever_passes():
    big, small = a_session("big", {"cuda.device": 4}, age=2), a_session("small", age=1, priority=5)
    full = an_agent(used={"cuda.device": 2})
    said = wait_of(plan_of([full], [big, small], retries_to_skip=3), small).reason.message
    assert said == "Queued behind a session that does not fit yet."
    said = wait_of(plan_of([full], [big, small], sequence="lifo"), small).reason.message
    assert said == "Queued behind a session of higher priority that does not fit yet."


def test_it_lets_others_pass_a_session_that_was_tried_often_enough():
    agent = an_agent(used={"cuda.device": 2})
    big, small = a_session("big", {"cuda.device": 4}, age=2, attempts=4), a_session("small", {"cpu": 1}, age=1)
    plan = plan_of([agent], [big, small], retries_to_skip=3)
    assert [placement.session_id for placement in plan.placements] == [small.id]
    assert wait_of(plan, big).reason.code == "insufficient-resources"


def test_it_keeps_the_line_while_the_blocker_has_tries_left():
    big, small = a_session("big", {"cuda.device": 4}, age=2, attempts=3), a_session("small", age=1)
    plan = plan_of([an_agent(used={"cuda.device": 2})], [big, small], retries_to_skip=3)
    assert wait_of(plan, small).reason.code == "behind-in-queue"


def test_it_puts_a_session_that_others_may_pass_at_the_end_of_the_line():
    tired = a_session("tired", {"cuda.device": 4}, age=2, attempts=4)
    fresh = a_session("fresh", {"cuda.device": 3}, age=1)
    plan = plan_of([an_agent(used={"cuda.device": 2})], [tired, fresh], retries_to_skip=3)
    assert (wait_of(plan, fresh).position, wait_of(plan, tired).position) == (1, 2)


def test_it_lets_smaller_sessions_pass_under_lifo():
    new, old = a_session("new", {"cuda.device": 4}, age=1), a_session("old", {"cpu": 1}, age=2)
    plan = plan_of([an_agent(used={"cuda.device": 2})], [new, old], sequence="lifo")
    assert [placement.session_id for placement in plan.placements] == [old.id]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"starts_at": NOW + timedelta(hours=1)}, "start-time-not-reached"),
        ({"image_build": ImageBuild(0.4, "")}, "image-building"),
        ({"image_build": ImageBuild(None, "no space left", failed=True)}, "image-build-failed"),
        ({"architectures": ["riscv64"]}, "no-agent-with-architecture"),
        ({"kernels": [{"cpu": 99}]}, "bigger-than-any-agent"),
        ({"kernels": [{"cpu": 16}]}, "no-agent-alive"),
    ],
)
def test_it_holds_nobody_back_for_what_concerns_one_session_alone(changes, code):
    agents = [an_agent("a"), an_agent("lost", has={"cpu": 32}, alive=False)]
    odd, next_one = a_session("odd", age=2, **changes), a_session("next", age=1)
    plan = plan_of(agents, [odd, next_one])
    assert wait_of(plan, odd).reason.code == code
    assert [placement.session_id for placement in plan.placements] == [next_one.id]


def test_it_names_a_sessions_own_obstacle_rather_than_the_queue():
    blocker = a_session("blocker", {"cuda.device": 4}, age=2)
    hopeless = a_session("hopeless", {"cpu": 99}, age=1)
    plan = plan_of([an_agent(used={"cuda.device": 1})], [blocker, hopeless])
    assert wait_of(plan, hopeless).reason.code == "bigger-than-any-agent"


def test_it_starts_at_the_very_moment_that_was_asked_for():
    assert plan_of([an_agent()], [a_session(starts_at=NOW)]).waits == ()


def test_it_goes_to_an_agent_on_which_the_session_failed_only_as_a_last_resort():
    agents = [an_agent("a"), an_agent("b")]
    session = a_session(avoid_agents=frozenset({agents[0].id}))
    assert agents_of(plan_of(agents, [session]), session, agents) == ["b"]
    assert agents_of(plan_of(agents[:1], [session]), session, agents) == ["a"]


def test_it_respects_the_most_kernels_of_an_agent_within_the_pass():
    sessions = [a_session(f"s{number}", age=9 - number) for number in range(3)]
    plan = plan_of([an_agent(kernels=1, max_kernels=3)], sessions)
    assert len(plan.placements) == 2
    reason = wait_of(plan, sessions[2]).reason
    assert reason.code == "too-many-kernels"
    assert reason.message == "No agent takes 1 more kernel now: gpu-01 runs 3 of at most 3."


def test_it_tells_what_it_looked_at_for_a_placement():
    agents = [an_agent("a", alive=False), an_agent("b", has={"cpu": 1}, used={"cpu": 1}), an_agent("c")]
    plan = plan_of(agents, [a_session(asks={"cpu": 2})])
    steps = {step.step: step.message for step in plan.placements[0].steps}
    assert list(steps) == [
        "sequencing", "kernels", "offered", "image-architecture", "start-time", "dependencies", "session-type", "image",
        "concurrency", "limits", "network", "capacity", "queue", "architecture", "alive", "schedulable", "fault",
        "draining", "selection",
    ]  # fmt: skip
    assert steps["sequencing"] == "Position 1 of 1 in the order fifo."
    assert steps["alive"] == "1 of 3 agents ruled out."
    assert steps["selection"] == "c, chosen by the rule concentrated; better ones without free resources: 1."
    assert all(step.passed for step in plan.placements[0].steps)


def test_it_tells_how_many_agents_each_filter_removed_for_a_wait():
    agents = [an_agent("a", alive=False), an_agent("b", schedulable=False), an_agent("c", used={"cpu": 8})]
    steps = plan_of(agents, [a_session()]).waits[0].steps
    assert [(step.step, step.message) for step in steps[-7:]] == [
        ("architecture", "0 of 3 agents ruled out."),
        ("alive", "1 of 3 agents ruled out."),
        ("schedulable", "1 of 2 agents ruled out."),
        ("fault", "0 of 1 agents ruled out."),
        ("draining", "0 of 1 agents ruled out."),
        ("max-kernels", "0 of 1 agents ruled out."),
        ("slots", "1 of 1 agents ruled out."),
    ]
    assert [step.passed for step in steps[-2:]] == [True, False]
    assert steps[-1].code == "insufficient-resources"


def test_it_ends_the_steps_of_a_closed_gate_at_that_gate():
    wait = plan_of([an_agent()], [a_session(starts_at=NOW + timedelta(hours=1))]).waits[0]
    assert [(step.step, step.passed) for step in wait.steps] == [
        ("sequencing", True), ("kernels", True), ("offered", True), ("image-architecture", True), ("start-time", False),
    ]  # fmt: skip
    assert wait.steps[-1].code == wait.reason.code


@pytest.mark.parametrize(
    "rules",
    [{"sequence": "random"}, {"selection": "nearest"}],
)
def test_it_refuses_rules_that_it_does_not_know(rules):
    with pytest.raises(ValueError, match=r"random|nearest"):
        plan_of([an_agent()], [], **rules)


def test_kernels_on_several_agents_leave_out_those_that_join_no_network():
    agents = [an_agent("a", has={"cpu": 4}, joins=False), an_agent("b", has={"cpu": 4}), an_agent("c", has={"cpu": 4})]
    session = a_session(kernels=[{"cpu": 3}, {"cpu": 3}], multi_node=True)
    plan = plan_of(agents, [session])
    assert agents_of(plan, session, agents) == ["b", "c"]
    wait = wait_of(plan_of(agents[:2], [session]), session)
    assert wait.reason.code == "agents-without-cluster-network" and "(1 of 2)" in wait.reason.message
    busy = [agents[0], an_agent("b", has={"cpu": 4}, used={"cpu": 2}), agents[2]]
    assert wait_of(plan_of(busy, [session]), session).reason.code == "insufficient-resources"


def test_kernels_that_may_lie_apart_need_no_network_on_one_agent():
    agents = [an_agent("a", has={"cpu": 8}, joins=False), an_agent("b", has={"cpu": 4}, joins=False)]
    session = a_session(kernels=[{"cpu": 3}, {"cpu": 3}], multi_node=True)
    plan = plan_of(agents, [session])
    assert agents_of(plan, session, agents) == ["a", "a"]
    second = a_session("second", kernels=[{"cpu": 3}, {"cpu": 1}], multi_node=True)
    assert agents_of(plan_of(agents, [session, second]), second, agents) == ["b", "b"], "the first was booked"
    large = a_session(kernels=[{"cpu": 5}, {"cpu": 2}, {"cpu": 2}], multi_node=True)
    assert wait_of(plan_of(agents, [large]), large).reason.code == "agents-without-cluster-network"
