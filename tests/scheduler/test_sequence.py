"""Whose turn comes first."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backendai.base.core.slots import Slots
from backendai.scheduler.decide import decide
from backendai.scheduler.sequence import Sequence, UserHoldings, turns
from backendai.scheduler.sequences import SEQUENCES
from backendai.scheduler.sequences.fair_share import factor
from backendai.scheduler.snapshot import Holder, ImageBuild
from tests.scheduler.worlds import NOW, a_session, a_snapshot, an_agent, plan_of, wait_of

OLD, NEW = a_session("old", age=5), a_session("new", age=1)
URGENT = a_session("urgent", age=0, priority=50)


def order(sessions, agents=(), **changes):
    snapshot = a_snapshot(list(agents) or [an_agent()], list(sessions), **changes)
    return list(turns(SEQUENCES[snapshot.rules.sequence], snapshot, UserHoldings(snapshot.held)))


def started(plan, *sessions):
    names = {session.id: session.name for session in sessions}
    return [names[placement.session_id] for placement in plan.placements]


def of(user, name, asks=None, **changes):
    return a_session(name, asks, holder=Holder(f"user:{user}", "", "project:p", "domain:d"), **changes)


def test_it_serves_the_oldest_first_under_fifo():
    assert order([NEW, OLD], sequence="fifo") == [OLD, NEW]


def test_it_serves_the_newest_first_under_lifo():
    assert order([OLD, NEW], sequence="lifo") == [NEW, OLD]


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_it_serves_a_higher_priority_before_anything_else_matters(sequence):
    assert order([OLD, NEW, URGENT], sequence=sequence)[0] == URGENT


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_it_orders_sessions_of_the_same_moment_in_one_way_only(sequence):
    twins = [a_session(name, age=1) for name in "abcd"]
    assert order(twins, sequence=sequence) == order(twins[::-1], sequence=sequence)


def test_sessions_that_were_tried_often_enough_go_behind_the_others_of_their_priority_and_keep_their_order():
    tired = [a_session(f"tired-{age}", age=age, attempts=4) for age in (9, 8)]
    fresh = a_session("fresh", age=1, attempts=3)
    lower = a_session("lower", age=10, priority=5)
    assert order([lower, *tired[::-1], fresh], retries_to_skip=3) == [fresh, *tired, lower]


def test_a_session_that_others_passed_for_too_long_gets_its_place_and_its_power_back():
    full = an_agent(used={"cuda.device": 2})
    big = a_session("big", {"cuda.device": 4}, age=9, attempts=7, overtaken_since=NOW - timedelta(hours=24))
    small = a_session("small", {"cpu": 1}, age=1)
    plan = plan_of([full], [big, small], retries_to_skip=3)
    assert wait_of(plan, small).reason.code == "behind-in-queue"
    assert wait_of(plan, big).position == 1
    generous = plan_of([full], [big, small], retries_to_skip=3, overtaking_limit=timedelta(hours=48))
    assert started(generous, big, small) == ["small"]
    assert wait_of(generous, big).overtaken


def test_nobody_is_passed_for_longer_than_the_limit_however_many_small_ones_come():
    """Pass after pass small sessions come and take what becomes free, until the cap of the big one is up."""
    big, since = a_session("big", {"cpu": 8}, age=1, attempts=2), None
    for hour in range(30):
        now = NOW + timedelta(hours=hour)
        small = a_session(f"small-{hour}", {"cpu": 3}, age=-60 * hour)
        agent = an_agent(used={"cpu": 3} if since is None or now - since < timedelta(hours=25) else {})
        view = a_session("big", {"cpu": 8}, age=1, attempts=2 + hour, overtaken_since=since)
        snapshot = a_snapshot([agent], [view, small], retries_to_skip=2)
        plan = decide(replace(snapshot, now=now))
        names = started(plan, view, small)
        if since is not None and now - since >= timedelta(hours=24):
            assert "small" not in "".join(names)
        if names == ["big"]:
            assert now - since == timedelta(hours=25)
            return
        since = since or (now if wait_of(plan, big).overtaken else None)
    pytest.fail("the big session never started")


def test_drf_serves_the_user_with_the_smallest_dominant_share_after_each_placement():
    """The example of the paper: 9 cores and 18 GB; tasks of 1 core and 4 GB against tasks of 3 cores and 1 GB."""
    agent = an_agent(has={"cpu": 9, "mem": 18})
    memory = [of("ann", f"a{number}", {"cpu": 1, "mem": 4}, age=50 - number) for number in range(6)]
    cores = [of("ben", f"b{number}", {"cpu": 3, "mem": 1}, age=30 - number) for number in range(6)]
    plan = plan_of([agent], [*cores, *memory], sequence="drf")
    assert started(plan, *memory, *cores) == ["a0", "b0", "a1", "b1", "a2"]


def test_drf_counts_what_a_user_holds_in_this_group_already():
    held = {"user:ann": Slots.parse({"cpu": 1})}
    sessions = [of("ann", "a", age=9), of("ben", "b", age=1)]
    assert [session.name for session in order(sessions, sequence="drf", held=held)] == ["b", "a"]


def test_drf_lets_a_user_of_twice_the_weight_hold_twice_as_much():
    sessions = [of(user, f"{user}{number}", {"cpu": 1}, age=9) for user in ("ann", "ben") for number in range(9)]
    agent = an_agent(has={"cpu": 6})
    plan = plan_of([agent], sessions, sequence="drf", weights={"user:ben": 2.0})
    names = started(plan, *sessions)
    assert sum(name.startswith("ben") for name in names) == 4


def test_drf_measures_shares_by_the_agents_that_are_alive_and_schedulable():
    """By what the living have, ann holds more; by what all have, ben would."""
    agents = [
        an_agent("a", has={"cpu": 10, "mem": 100}),
        an_agent("lost", has={"cpu": 90}, alive=False),
        an_agent("paused", has={"cpu": 90}, schedulable=False),
    ]
    held = {"user:ann": Slots.parse({"cpu": 4}), "user:ben": Slots.parse({"mem": 30})}
    sessions = [of("ann", "a", age=9), of("ben", "b", age=1)]
    assert [session.name for session in order(sessions, agents, sequence="drf", held=held)] == ["b", "a"]


def test_drf_lets_nobody_wait_for_a_user_whose_session_finds_no_room():
    sessions = [of("ann", "big", {"cpu": 8}, age=9), of("ann", "small", age=8), of("ben", "other", age=1)]
    plan = plan_of([an_agent(used={"cpu": 4})], sessions, sequence="drf")
    assert started(plan, *sessions) == ["small", "other"]
    assert wait_of(plan, sessions[0]).tried


def test_fair_share_goes_by_domain_then_project_then_user_then_age():
    def who(domain, project, user, age):
        holder = Holder(f"user:{user}", "", f"project:{project}", f"domain:{domain}")
        return a_session(f"{domain}{project}{user}{age}", holder=holder, age=age)

    past_usage = {"domain:2": 0.1, "project:b": 0.2, "user:y": 0.3, "user:z": 0.2}
    sessions = [
        who(2, "a", "x", 9), who(1, "b", "x", 8), who(1, "a", "y", 7), who(1, "a", "z", 6), who(1, "a", "x", 1),
        who(1, "a", "x", 2),
    ]  # fmt: skip
    served = order(sessions, sequence="fair-share", past_usage=past_usage)
    assert [session.name for session in served] == ["1ax2", "1ax1", "1az6", "1ay7", "1bx8", "2ax9"]


def test_fair_share_divides_past_use_by_the_weight():
    sessions = [of("ann", "a", age=9), of("ben", "b", age=1)]
    past_usage, weights = {"user:ann": 0.3, "user:ben": 0.5}, {"user:ben": 2.0}
    served = order(sessions, sequence="fair-share", past_usage=past_usage, weights=weights)
    assert [session.name for session in served] == ["b", "a"]


def test_fair_share_tells_even_those_apart_who_used_very_much():
    """Their factors would both be rounded to nothing."""
    sessions = [of("ann", "a", age=9), of("ben", "b", age=1)]
    past_usage = {"user:ann": 5000.0, "user:ben": 4000.0}
    assert [session.name for session in order(sessions, sequence="fair-share", past_usage=past_usage)] == ["b", "a"]


@pytest.mark.parametrize(("usage", "weight", "expected"), [(0, 1, 1), (1, 1, 0.5), (1, 2, 0.5**0.5), (3, 0, 0)])
def test_the_factor_halves_with_every_share_that_was_used(usage, weight, expected):
    assert factor(usage, weight) == pytest.approx(expected)


@pytest.mark.parametrize("wrong", [lambda line: line.sessions[1:], lambda line: line.sessions * 2])
@pytest.mark.parametrize("gate", [{}, {"image_build": ImageBuild(0.5, "")}], ids=["free", "gated"])
def test_a_pass_notices_a_sequence_that_loses_or_doubles_a_session(monkeypatch, wrong, gate):
    monkeypatch.setitem(SEQUENCES, "odd", Sequence("odd", "an odd one", wrong))
    sessions = [a_session(name, age=age, **gate) for name, age in (("old", 5), ("new", 1))]
    with pytest.raises(ValueError, match=r"leaves out 1 of 2 sessions|twice"):
        plan_of([an_agent()], sessions, sequence="odd")
