"""What schedulers of this kind got wrong before: each of these stays right here."""

from __future__ import annotations

import pytest

from backendai.base.core.slots import Slots
from backendai.scheduler.decide import decide
from backendai.scheduler.sequences import SEQUENCES
from backendai.scheduler.snapshot import Holder, LimitView
from tests.scheduler.worlds import a_session, a_snapshot, agents_of, an_agent, plan_of, wait_of


def started(plan, *sessions):
    names = {session.id: session.name for session in sessions}
    return [names[placement.session_id] for placement in plan.placements]


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_small_sessions_of_low_priority_do_not_overtake_a_large_one_for_ever(sequence):
    big = a_session("big", {"cpu": 8}, priority=20)
    small = [a_session(f"small-{number}", {"cpu": 1}, priority=5, age=9) for number in range(20)]
    plan = plan_of([an_agent(used={"cpu": 1})], [*small, big], sequence=sequence)
    assert plan.placements == ()
    assert {wait_of(plan, session).reason.code for session in small} == {"behind-in-queue"}
    assert wait_of(plan, small[0]).reason.aside_details["blocker"] == str(big.id)


def test_the_number_of_tries_after_which_others_may_pass_is_not_ignored():
    full = an_agent(used={"cuda.device": 2})
    small = a_session("small", {"cpu": 1}, age=1)
    for attempts in range(6):
        big = a_session("big", {"cuda.device": 4}, age=2, attempts=attempts)
        assert started(plan_of([full], [big, small], retries_to_skip=3), big, small) == ["small"] * (attempts > 3)


def test_a_cluster_gives_way_like_any_other_session():
    cluster = a_session("cluster", kernels=[{"cpu": 6}] * 2, multi_node=True, age=9, attempts=4)
    small = a_session("small", {"cpu": 1}, age=1)
    plan = plan_of([an_agent("a"), an_agent("b", used={"cpu": 8})], [cluster, small], retries_to_skip=3)
    assert started(plan, cluster, small) == ["small"]
    assert wait_of(plan, cluster).tried


def test_first_in_is_first_out_whatever_the_order_of_the_rows():
    sessions = [a_session(f"s{number}", {"cpu": 1}, age=number // 2) for number in range(8)]
    plans = [
        plan_of([an_agent(has={"cpu": 3})], order) for order in (sessions, sessions[::-1], sessions[3:] + sessions[:3])
    ]
    assert plans[0] == plans[1] == plans[2]
    oldest = {session.id for session in sessions[6:]}
    assert {placement.session_id for placement in plans[0].placements[:2]} == oldest


def test_a_pass_takes_hundreds_of_sessions_at_once():
    sessions = [a_session(f"s{number}", {"cpu": 1}, age=number) for number in range(500)]
    plan = plan_of([an_agent("a", has={"cpu": 300}), an_agent("b", has={"cpu": 300})], sessions)
    assert (len(plan.placements), plan.waits) == (500, ())


def test_a_session_that_was_not_tried_has_not_failed_a_try():
    big, small = a_session("big", {"cuda.device": 4}, age=2), a_session("small", age=1)
    plan = plan_of([an_agent(used={"cuda.device": 2})], [big, small])
    assert (wait_of(plan, big).tried, wait_of(plan, small).tried) == (True, False)


def test_kernels_of_a_single_node_session_need_their_sum_on_one_agent():
    agents = [an_agent("a", has={"cpu": 5}), an_agent("b", has={"cpu": 6})]
    session = a_session(kernels=[{"cpu": 2}] * 3)
    assert agents_of(plan_of(agents, [session]), session, agents) == ["b", "b", "b"]


@pytest.mark.parametrize("selection", ["concentrated", "dispersed", "round-robin"])
def test_a_session_without_accelerators_does_not_lie_on_accelerators(selection):
    agents = [an_agent("a-gpu"), an_agent("b-plain", has={"cpu": 4, "mem": "4g"})]
    session = a_session(asks={"cpu": 1})
    assert agents_of(plan_of(agents, [session], selection=selection), session, agents) == ["b-plain"]


def test_an_amount_that_is_larger_in_one_slot_only_does_not_fit():
    session = a_session(asks={"cpu": 1, "cuda.device": 3})
    assert plan_of([an_agent(used={"cuda.device": 2})], [session]).placements == ()


def test_a_slot_that_a_request_does_not_name_is_none_of_it():
    assert plan_of([an_agent(used={"cuda.device": 4, "mem": "32g"})], [a_session(asks={"cpu": 1})]).placements


def test_over_the_limit_on_sessions_it_waits_and_starts_once_there_is_room():
    holder = Holder(user="user:ann")
    session = a_session(holder=holder)
    full, room = (LimitView("user", "ann", max_sessions=5, sessions=count) for count in (5, 4))
    wait = plan_of([an_agent()], [session], limits={"user:ann": full}).waits[0]
    assert (wait.reason.code, wait.reason.never, wait.tried) == ("too-many-sessions", False, False)
    assert plan_of([an_agent()], [session], limits={"user:ann": room}).placements


def test_one_backlog_does_not_go_before_everybody_else_under_drf():
    backlog = [a_session(f"ann-{number}", {"cpu": 1}, age=99, holder=Holder("user:ann")) for number in range(8)]
    other = a_session("ben", {"cpu": 1}, age=1, holder=Holder("user:ben"))
    plan = plan_of([an_agent(has={"cpu": 4})], [*backlog, other], sequence="drf")
    assert other.id in {placement.session_id for placement in plan.placements[:2]}


def test_a_user_is_measured_by_all_that_he_holds_and_by_this_group_only():
    """The share is that of the sum of his sessions, and only of those in the group that is scheduled."""
    held = {"user:ann": Slots.parse({"cpu": 3}), "user:ben": Slots.parse({"cpu": 2})}
    sessions = [
        a_session(user, age=9 - turn, holder=Holder(f"user:{user}")) for turn, user in enumerate(("ann", "ben"))
    ]
    plan = decide(a_snapshot([an_agent(used={"cpu": 5})], sessions, sequence="drf", held=held))
    assert started(plan, *sessions) == ["ben", "ann"]


def test_those_that_a_limit_holds_do_not_stand_in_the_way_of_a_strict_queue():
    limits = {"user:ann": LimitView("user", "ann", Slots.parse({"cpu": 1}))}
    held, free = a_session("held", {"cpu": 2}, age=9, holder=Holder("user:ann")), a_session("free", age=1)
    plan = plan_of([an_agent()], [held, free], limits=limits)
    assert started(plan, held, free) == ["free"]
