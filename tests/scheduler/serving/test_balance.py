"""Which replica gets a request."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from backendai.scheduler.serving.balance import Candidate, ReplicaHealth, choose_replica, eject, ejected_for, is_fault


def test_the_least_busy_for_its_weight():
    assert choose_replica([Candidate("a", 3), Candidate("b", 2)], 0.5) == "b"
    assert choose_replica([Candidate("a", 3), Candidate("b", 2, weight=0.1)], 0.5) == "a"


def test_ties_are_spread_evenly():
    even = [Candidate(name, 1) for name in "abcd"]
    assert Counter(choose_replica(even, draw / 100) for draw in range(100)) == dict.fromkeys("abcd", 25)


def test_none_where_all_are_full_or_tried():
    assert choose_replica([Candidate("a", 2, limit=2)], 0.0) is None
    assert choose_replica([Candidate("a"), Candidate("b")], 0.0, avoid={"a"}) == "b"
    assert choose_replica([Candidate("a")], 0.0, avoid={"a"}) is None


def test_ejection_grows_up_to_two_minutes():
    assert [ejected_for(times) for times in (1, 2, 20)] == [10.0, 20.0, 120.0]


def test_busy_is_no_fault():
    assert [status for status in (200, 429, 500, 502, 503, 504) if is_fault(status)] == [502, 504]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 5.0, 50.0])), max_size=9))
def test_at_least_half_of_those_that_have_answered_stay(seen):
    sights = [ReplicaHealth(number, answered, until) for number, (answered, until) in enumerate(seen)]
    out, known = eject(sights, 10.0), {one.id for one in sights if one.has_answered}
    assert {one.id for one in sights} - known <= out  # who never answered gets nothing
    assert 2 * len(known - out) >= len(known)
