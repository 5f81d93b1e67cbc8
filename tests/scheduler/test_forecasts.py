"""Learned lengths, the look ahead and its ranges, without a database."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backendai.base.core.slots import Slots
from backendai.scheduler.forecasts.lengths import LEAST, length_at, with_length
from backendai.scheduler.forecasts.ranges import ENOUGH, range_of, ratio_of, spread_of
from backendai.scheduler.forecasts.starts import MOST_PASSES, foresee_starts
from backendai.scheduler.forecasts.world import Held, Occupant
from backendai.scheduler.snapshot import Dependency, DependencyState, Holder, LimitView
from tests.scheduler.worlds import NOW, a_session, a_snapshot, an_agent

HOUR = timedelta(hours=1)


def counts_of(*seconds: float) -> list[float]:
    counts: list[float] = []
    for each in seconds:
        counts = with_length(counts, each)
    return counts


def occupant(session, agent, ends_in: timedelta | None, **holder: str) -> Occupant:
    return Occupant(
        session.id, (Held(agent.id, session.total),), Holder(**holder), None if ends_in is None else NOW + ends_in
    )


@given(st.lists(st.floats(0, 1e7), min_size=1, max_size=60), st.floats(0.01, 0.99))
def test_a_quantile_lies_among_the_lengths_within_a_bucket(lengths: list[float], share: float) -> None:
    found = length_at(share, [counts_of(*lengths)])
    if len(lengths) < LEAST:
        assert found is None
    elif found is not None:
        assert min(lengths) / 1.5 - 2 <= found.total_seconds() <= max(max(lengths), 2) * 1.5


@given(st.lists(st.floats(1, 1e6), min_size=10, max_size=60), st.floats(0, 1e6))
def test_the_length_of_a_running_session_is_never_below_what_it_has_run(lengths: list[float], ran: float) -> None:
    beyond = timedelta(seconds=ran)
    found = length_at(0.5, [counts_of(*lengths)], beyond=beyond)
    assert found is None or found >= beyond


def test_a_wider_group_answers_where_the_narrow_one_has_too_few() -> None:
    few, many = counts_of(60, 60), counts_of(*[3600] * 10)
    assert length_at(0.5, [few, many]) == length_at(0.5, [many])
    assert length_at(0.5, [few]) is None


def test_a_session_that_outlives_all_known_ones_has_no_known_length() -> None:
    assert length_at(0.5, [counts_of(*[60] * 20)], beyond=10 * HOUR) is None


def test_new_lengths_outweigh_old_ones() -> None:
    changed = counts_of(*[60] * 100, *[36_000] * 100)
    assert length_at(0.5, [changed]) > 5 * HOUR


def test_sessions_start_one_after_the_other_as_ends_come() -> None:
    agent = an_agent(has={"cpu": 2}, used={"cpu": 2})
    running = a_session("running", {"cpu": 2})
    first, second = a_session("first", {"cpu": 2}, age=2), a_session("second", {"cpu": 2}, age=1)
    found = foresee_starts(a_snapshot([agent], [second, first]), [occupant(running, agent, HOUR)], lambda pk: 2 * HOUR)
    assert found.starts[first.id] - NOW == HOUR
    assert timedelta(hours=3) <= found.starts[second.id] - NOW <= timedelta(hours=3, minutes=10)


def test_without_a_known_end_nothing_is_said_but_who_has_none() -> None:
    agent = an_agent(has={"cpu": 2}, used={"cpu": 2})
    waiting = a_session("waiting", {"cpu": 2})
    found = foresee_starts(
        a_snapshot([agent], [waiting]), [occupant(a_session("running", {"cpu": 2}), agent, None)], lambda pk: None
    )
    assert (dict(found.starts), found.endless, found.was_cut) == ({}, 1, False)


def test_a_limit_of_the_owner_ends_with_the_owners_session() -> None:
    agent = an_agent(has={"cpu": 8}, used={"cpu": 1})
    waiting = a_session("waiting", {"cpu": 1}, holder=Holder("user:1"))
    limits = {"user:1": LimitView("user", "alice", max_sessions=1, used=Slots.parse({"cpu": 1}), sessions=1)}
    running = occupant(a_session("running", {"cpu": 1}), agent, HOUR, user="user:1")
    found = foresee_starts(a_snapshot([agent], [waiting], limits=limits), [running], lambda pk: HOUR)
    assert found.starts == {waiting.id: NOW + HOUR}


def test_a_session_that_depends_on_another_starts_after_its_end() -> None:
    first = a_session("first", {"cpu": 1}, age=1)
    then = a_session("then", {"cpu": 1}, dependencies=(Dependency(first.id, "first", DependencyState.LIVE),))
    found = foresee_starts(a_snapshot([an_agent()], [first, then]), [], lambda pk: HOUR)
    assert found.starts == {first.id: NOW, then.id: NOW + HOUR}


def test_a_start_time_is_waited_for_though_nothing_ends() -> None:
    later = a_session("later", {"cpu": 1}, starts_at=NOW + 5 * HOUR)
    found = foresee_starts(a_snapshot([an_agent()], [later]), [], lambda pk: HOUR)
    assert found.starts == {later.id: NOW + 5 * HOUR}


def test_devices_of_ended_sessions_are_free_again() -> None:
    agent = an_agent(has={"cuda.device": 1})
    first, second = (a_session(name, {"cuda.device": 1}, age=age) for name, age in (("first", 2), ("second", 1)))
    found = foresee_starts(a_snapshot([agent], [first, second]), [], lambda pk: HOUR)
    assert found.starts == {first.id: NOW, second.id: NOW + HOUR}


def test_a_long_queue_is_cut_instead_of_looked_at_for_ever() -> None:
    pending = [a_session(f"s{number}", {"cpu": 8}) for number in range(MOST_PASSES * 4)]
    found = foresee_starts(a_snapshot([an_agent(has={"cpu": 8})], pending), [], lambda pk: timedelta(days=1) / 4)
    assert found.was_cut
    assert len(found.starts) < len(pending)


@given(
    st.lists(st.floats(0.01, 50), min_size=ENOUGH, max_size=200),
    st.integers(0, 10**6),
    st.sampled_from(([True], [False])),
)
def test_a_range_is_in_order_and_never_in_the_past(ratios: list[float], seconds: int, inside: list[bool]) -> None:
    expected = NOW + timedelta(seconds=seconds)
    found = range_of(NOW, expected, expected, spread_of(ratios, inside * len(ratios)))
    assert NOW <= found.early <= found.late <= found.latest


def test_the_range_holds_as_often_as_it_says_where_the_group_stays_as_it_is() -> None:
    ratios = [0.5 + number / 100 for number in range(200)]
    spread = spread_of(ratios, ([True] * 4 + [False]) * 40)
    assert spread.is_reliable
    assert sum(spread.early <= each <= spread.late for each in ratios) / len(ratios) == pytest.approx(0.8, abs=0.02)
    assert not spread_of(ratios[: ENOUGH - 1], [True] * ENOUGH).is_reliable


def test_ranges_that_hold_too_seldom_just_now_are_widened_and_others_narrowed() -> None:
    ratios = [0.5 + number / 100 for number in range(200)]
    seldom, always = (spread_of(ratios, [inside] * 200) for inside in (False, True))
    usual = spread_of(ratios, ([True] * 4 + [False]) * 40)
    assert seldom.early < usual.early < always.early < always.late < usual.late < seldom.late


def test_a_start_as_expected_has_the_ratio_one() -> None:
    assert ratio_of(NOW, NOW + HOUR, NOW + HOUR) == 1
    assert ratio_of(NOW, NOW - HOUR, NOW) == 1  # a clock that was set back
