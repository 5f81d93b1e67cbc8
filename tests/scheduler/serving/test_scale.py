"""How many replicas: single cases, and long runs of a toy model server."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from math import ceil
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backendai.scheduler.serving.scale import decide_scale
from backendai.scheduler.serving.snapshot import (
    DesiredState,
    EndpointView,
    LoadView,
    ReplicaState,
    ReplicaView,
    RuleView,
)
from tests.scheduler.serving.toy import LIMIT, SERVICE, START, TARGET, Toy

NOW = START
HOUR = 3600


def an_endpoint(**fields):
    usual = {"minimum": 1, "maximum": 8, "target": 4.0, "desired": 2, "load": LoadView(short=8, long=8, peak=8)}
    return EndpointView(UUID(int=1), **usual | fields)


def decided(endpoint):
    scale = decide_scale(endpoint, NOW)
    return scale.desired, scale.reason.code


def test_load_within_the_dead_band_changes_nothing():
    assert decided(an_endpoint(load=LoadView(short=8.7, long=8.7, peak=8.7))) == (2, "at-target")


def test_more_load_raises_to_what_it_needs():
    assert decided(an_endpoint(load=LoadView(short=13, long=13, peak=13))) == (4, "load-grew")


def test_a_jump_at_most_doubles_and_forbids_to_lower_for_a_minute():
    scale = decide_scale(an_endpoint(load=LoadView(short=40, long=3, peak=8)), NOW)
    assert (scale.desired, scale.reason.code) == (4, "load-jumped")
    assert scale.panic_until == NOW + timedelta(seconds=60)
    calm = an_endpoint(desired=4, panic_until=scale.panic_until, load=LoadView(peak=1))
    assert decided(calm) == (4, "in-window")


def test_lower_goes_at_most_to_half():
    assert decided(an_endpoint(desired=8, load=LoadView(short=1, long=1, peak=1))) == (4, "load-fell")


def test_sentences_about_one_replica_are_in_the_singular():
    said = [
        decide_scale(an_endpoint(desired=desired, load=LoadView(short=1, long=1, peak=1)), NOW).reason.message
        for desired in (1, 2)
    ]
    assert [one.rpartition(": ")[2] for one in said] == ["1 replica is right.", "1 replica."]


def test_the_peak_of_five_minutes_holds_the_number():
    assert decided(an_endpoint(desired=4, load=LoadView(short=1, long=1, peak=13))) == (4, "at-target")


def test_the_limit_says_which_change_would_help():
    scale = decide_scale(an_endpoint(desired=8, load=LoadView(short=60, long=60, peak=60)), NOW)
    assert (scale.desired, scale.reason.code) == (8, "at-max")
    assert scale.reason.data["change"] == {"maximum": 9}


@pytest.mark.parametrize("age", [None, timedelta(seconds=16)])
def test_blind_never_lowers_and_still_raises(age):
    assert decided(an_endpoint(desired=8, load=LoadView(age=age))) == (8, "blind")
    assert decided(an_endpoint(load=LoadView(short=13, long=13, peak=13, age=age))) == (4, "load-grew")


def test_a_silent_proxy_makes_blind():
    assert decided(an_endpoint(desired=8, load=LoadView(is_partial=True))) == (8, "blind")


def test_an_unknown_metric_neither_raises_nor_lowers():
    rule = RuleView("p95", None, up_over=2.0, down_under=1.0)
    assert decided(an_endpoint(desired=8, load=LoadView(), rules=(rule,))) == (8, "metric-unknown")


def test_a_rule_raises_by_its_step_clamped_to_the_limit():
    rule = RuleView("p95", 3.0, up_over=2.0, step=5)
    assert decided(an_endpoint(rules=(rule,))) == (7, "rule")
    assert decided(an_endpoint(desired=6, rules=(rule,))) == (8, "rule")


def test_gpu_use_raises_only_with_a_queue():
    rule = RuleView("GPU use", 0.99, up_over=0.8, needs_queue=True)
    assert decided(an_endpoint(rules=(rule,))) == (2, "at-target")
    queued = LoadView(short=8, long=8, peak=8, queued=3)
    assert decided(an_endpoint(rules=(rule,), load=queued)) == (3, "rule")


def test_one_cool_down_for_all_rules():
    rule = RuleView("p95", 3.0, up_over=2.0)
    changed_at = NOW - timedelta(seconds=299)
    assert decided(an_endpoint(rules=(rule,), scaled_at=changed_at)) == (2, "cooling-down")
    assert decided(an_endpoint(rules=(rule,), scaled_at=changed_at - timedelta(seconds=1))) == (3, "rule")


def test_rules_apply_to_a_new_endpoint_at_once():
    rule = RuleView("p95", 3.0, up_over=2.0)
    assert decided(an_endpoint(rules=(rule,), scaled_at=NOW, created_at=NOW)) == (3, "rule")


def test_zero_after_a_quiet_time_and_awake_at_the_first_request():
    quiet = an_endpoint(minimum=0, desired=1, load=LoadView(), asked_at=NOW - timedelta(minutes=15))
    assert decided(quiet) == (0, "fell-asleep")
    assert decided(replace(quiet, load=LoadView(open=1))) == (1, "at-min")
    least = decide_scale(an_endpoint(minimum=2, desired=2, load=LoadView(long=0.2)), NOW).reason.message
    assert least == "0.2 requests are under way at once; the minimum of replicas is 2."
    assert decided(replace(quiet, desired=0)) == (0, "asleep")
    assert decided(replace(quiet, desired=0, load=LoadView(held=1))) == (1, "woken")


def test_new_limits_stopped_and_by_hand():
    assert decided(an_endpoint(desired=9)) == (8, "limits-changed")
    assert decided(an_endpoint(desired=0)) == (1, "limits-changed")
    assert decided(an_endpoint(wish=DesiredState.STOPPED)) == (0, "paused")
    both = an_endpoint(minimum=2, maximum=2)
    assert decided(both) == (2, "manual")
    assert decide_scale(both, NOW).reason.message.startswith("The minimum and the maximum are both 2: the load")


def test_a_start_under_way_is_not_given_up():
    starting = ReplicaView(UUID(int=2), 1, 1, ReplicaState.LOADING)
    fields = {"desired": 4, "load": LoadView(short=1, long=1, peak=1)}
    assert decided(an_endpoint(replicas=(starting,), **fields)) == (4, "starting-already")
    unplaced = replace(starting, state=ReplicaState.STARTING, waits_for="no-room")
    assert decided(an_endpoint(replicas=(unplaced,), **fields)) == (2, "load-fell")


@pytest.mark.parametrize("replicas", [0.5, 1, 3, 5.5, 7.5])
def test_constant_load_never_changes_a_number_that_is_right(replicas):
    toy = Toy(lambda second: replicas * TARGET / SERVICE, first=ceil(replicas / 0.85)).run(HOUR)
    assert toy.reversals == 0
    assert max(toy.counts) <= replicas / 0.85 + 2
    assert max(toy.queues) <= LIMIT


def test_bursts_turn_no_more_often_than_the_load():
    toy = Toy(lambda second: (6 if second % 1200 < 300 else 0.7) * TARGET / SERVICE, first=1).run(HOUR)
    assert toy.reversals <= 6  # three bursts: up and down again


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(0.2, 8), min_size=1, max_size=3), st.integers(0, 10**6), st.sampled_from([10, 90, 240]))
def test_a_level_turns_the_number_once_at_most_and_leaves_no_queue(levels, seed, cold_start):
    toy = Toy(lambda second: levels[second // 1200] * TARGET / SERVICE, seed=seed, cold_start=cold_start)
    toy.run(1200 * len(levels))
    # What piled up behind a cold start may order a replica too many, which goes again: one turn more for each level.
    assert toy.reversals <= 2 * len(levels) - 1
    for level in range(len(levels)):
        assert toy.queues[1200 * (level + 1) - 1] <= LIMIT
