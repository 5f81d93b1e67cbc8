"""Backfill: others pass the first in line as long as they do not delay it."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid5

import pytest
from hypothesis import given, settings

from backendai.base.core.slots import Slots
from backendai.scheduler.decide import decide
from backendai.scheduler.snapshot import DeviceView, RunningView
from tests.effort import examples
from tests.scheduler.checks import backfill_never_delays_the_first_in_line, no_agent_is_over_capacity
from tests.scheduler.crowds import crowds
from tests.scheduler.worlds import _IDS, NOW, a_session, agents_of, an_agent, plan_of, wait_of

HOUR = timedelta(hours=1)


def running(agent, amounts, ends_in=None, name="other"):
    slots = Slots.parse(amounts)
    return RunningView(uuid5(_IDS, name), ((agent.id, slots, 1),), None if ends_in is None else NOW + ends_in)


def started(plan, *sessions):
    names = {session.id: session.name for session in sessions}
    return [names[placement.session_id] for placement in plan.placements]


def plan_with(agents, sessions, held, **rules):
    return plan_of(agents, sessions, running=tuple(held), backfill=True, **rules)


BUSY = an_agent("busy", has={"cpu": 8}, used={"cpu": 4}, kernels=1)
HEAD = a_session("head", {"cpu": 8}, age=9)


def test_the_first_in_line_is_told_when_it_starts_at_the_latest():
    plan = plan_with([BUSY], [HEAD], [running(BUSY, {"cpu": 4}, HOUR)])
    reason = wait_of(plan, HEAD).reason
    assert (reason.code, reason.until) == ("insufficient-resources", NOW + HOUR)
    assert reason.message.endswith("This session starts at 2025-06-02 10:00:00 UTC at the latest.")


def test_a_session_that_ends_by_then_passes_and_one_that_does_not_waits():
    short = a_session("short", {"cpu": 2}, age=2, longest_run=HOUR)
    long = a_session("long", {"cpu": 2}, age=1, longest_run=HOUR + timedelta(seconds=1))
    endless = a_session("endless", {"cpu": 2}, age=0)
    plan = plan_with([BUSY], [HEAD, short, long, endless], [running(BUSY, {"cpu": 4}, HOUR)])
    assert started(plan, HEAD, short, long, endless) == ["short"]
    reason = wait_of(plan, long).reason
    assert reason.code == "behind-in-queue"
    assert reason.message == (
        "Queued behind a session that does not fit yet: free resources are reserved for that session."
    )
    assert reason.aside == "That session requests 8 CPU cores and starts at 2025-06-02 10:00:00 UTC at the latest."
    assert reason.aside_details["starts_at"] == (NOW + HOUR).isoformat()
    assert [wait.tried for wait in plan.waits] == [True, False, False]


def test_a_session_that_stays_passes_where_the_first_in_line_will_not_be():
    aside = an_agent("aside", has={"cpu": 4})
    endless = a_session("endless", {"cpu": 4}, age=1)
    plan = plan_with([BUSY, aside], [HEAD, endless], [running(BUSY, {"cpu": 4}, HOUR)])
    assert agents_of(plan, endless, [BUSY, aside]) == ["aside"]


def test_a_session_that_stays_takes_what_the_first_in_line_leaves():
    head = a_session("head", {"cpu": 6}, age=9)
    fits, too_much = a_session("fits", {"cpu": 2}, age=2), a_session("too much", {"cpu": 1}, age=1)
    plan = plan_with([BUSY], [head, fits, too_much], [running(BUSY, {"cpu": 4}, HOUR)])
    assert started(plan, head, fits, too_much) == ["fits"]


def test_it_finds_the_earliest_of_many_ends():
    agent = an_agent(has={"cpu": 8}, used={"cpu": 8}, kernels=8)
    held = [running(agent, {"cpu": 1}, timedelta(minutes=minute), f"r{minute}") for minute in (50, 10, 40, 20, 30)]
    head = a_session("head", {"cpu": 3}, age=9)
    assert wait_of(plan_with([agent], [head], held), head).reason.until == NOW + timedelta(minutes=30)


def test_the_end_of_a_session_that_this_pass_starts_counts_as_well():
    agent, first = an_agent(has={"cpu": 8}), a_session("first", {"cpu": 4}, age=20, longest_run=2 * HOUR)
    assert wait_of(plan_with([agent], [first, HEAD], []), HEAD).reason.until == NOW + 2 * HOUR


def test_an_end_that_has_passed_counts_as_now():
    plan = plan_with([BUSY], [HEAD], [running(BUSY, {"cpu": 4}, -HOUR)])
    assert wait_of(plan, HEAD).reason.until == NOW


def test_without_known_ends_others_leave_alone_what_the_first_in_line_asks_for():
    agents = [
        an_agent("gpu", has={"cpu": 16, "cuda.device": 4}, used={"cuda.device": 2}, kernels=1),
        an_agent("small", has={"cpu": 4, "cuda.device": 1}),
    ]
    head = a_session("head", {"cpu": 8, "cuda.device": 3}, age=9)
    gpu = a_session("gpu", {"cpu": 1, "cuda.device": 1}, age=4)
    cores, more = a_session("cores", {"cpu": 8}, age=3), a_session("more", {"cpu": 4}, age=2)
    plan = plan_with(agents, [head, gpu, cores, more], [running(agents[0], {"cuda.device": 2})])
    assert wait_of(plan, head).reason.until is None
    assert agents_of(plan, gpu, agents) == ["small"]  # on which the first in line can never run
    assert started(plan, head, gpu, cores, more) == ["gpu", "cores"]
    assert wait_of(plan, more).reason.aside == "That session requests 8 CPU cores, 3 GPUs."


def test_of_shared_devices_nobody_takes_any_while_their_ends_are_not_known():
    devices = tuple(DeviceView(name, "cuda.shares", 1000, 700) for name in ("a", "b"))
    agent = an_agent(has={"cpu": 8, "cuda.shares": 2}, used={"cuda.shares": "1.4"}, devices=devices)
    head = a_session("head", {"cuda.shares": "0.5"}, age=9)
    tiny = a_session("tiny", {"cuda.shares": "0.05"}, age=1)
    plan = plan_with([agent], [head, tiny], [running(agent, {"cuda.shares": "0.7"})], allow_fragmentation=False)
    assert wait_of(plan, head).reason.code == "fragmented"
    assert wait_of(plan, tiny).reason.code == "behind-in-queue"


def test_a_cluster_gets_a_reserved_start_for_all_its_kernels():
    agents = [an_agent(name, has={"cpu": 4}, used={"cpu": 4}, kernels=1) for name in ("a", "b")]
    held = [running(agents[0], {"cpu": 4}, HOUR, "r1"), running(agents[1], {"cpu": 4}, 2 * HOUR, "r2")]
    head = a_session("head", kernels=[{"cpu": 3}] * 2, multi_node=True, age=9)
    assert wait_of(plan_with(agents, [head], held), head).reason.until == NOW + 2 * HOUR


@pytest.mark.parametrize("sequence", ["lifo", "drf", "fair-share"])
def test_it_keeps_a_place_for_the_first_in_line_under_every_sequence(sequence):
    head, endless = a_session("head", {"cpu": 8}, priority=20), a_session("endless", {"cpu": 4})
    held = [running(BUSY, {"cpu": 4}, HOUR)]
    assert started(plan_with([BUSY], [head, endless], held, sequence=sequence), head, endless) == []


def test_one_that_was_tried_often_enough_gives_way_only_without_a_reserved_start():
    tired = a_session("tired", {"cpu": 8}, age=9, attempts=5)
    endless = a_session("endless", {"cpu": 4}, age=1)
    promised = plan_with([BUSY], [tired, endless], [running(BUSY, {"cpu": 4}, HOUR)], retries_to_skip=3)
    assert started(promised, tired, endless) == []
    unknown = plan_with([BUSY], [tired, endless], [running(BUSY, {"cpu": 4})], retries_to_skip=3)
    assert started(unknown, tired, endless) == ["endless"]


def test_what_is_kept_does_not_use_up_an_agents_turn():
    agents = [an_agent(name, has={"cpu": 8}) for name in ("a", "b", "c")]
    agents[0] = an_agent("a", has={"cpu": 9}, used={"cpu": 4}, kernels=1)
    head, aside = a_session("head", {"cpu": 9}, age=9), a_session("aside", {"cpu": 1}, age=1)
    plan = plan_with(agents, [head, aside], [running(agents[0], {"cpu": 4}, HOUR)], selection="round-robin")
    assert agents_of(plan, aside, agents) == ["b"]
    assert plan.next_agent == "c"


@settings(max_examples=examples(150), deadline=None)
@given(crowds(backfill=True, limits={}))
def test_it_never_delays_the_first_in_line(snapshot):
    backfill_never_delays_the_first_in_line(snapshot, decide)
    no_agent_is_over_capacity(snapshot, decide)
