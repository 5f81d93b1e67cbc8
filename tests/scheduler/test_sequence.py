"""Whose turn comes first."""

from __future__ import annotations

import pytest

from backendai.scheduler.sequence import fifo, lifo, sequence_named
from tests.scheduler.worlds import a_session

OLD, NEW = a_session("old", age=5), a_session("new", age=1)
URGENT = a_session("urgent", age=0, priority=50)


def test_it_serves_the_oldest_first_under_fifo():
    assert fifo([NEW, OLD]) == [OLD, NEW]


def test_it_serves_the_newest_first_under_lifo():
    assert lifo([OLD, NEW]) == [NEW, OLD]


@pytest.mark.parametrize("sequence", [fifo, lifo])
def test_it_serves_a_higher_priority_before_age_matters(sequence):
    assert sequence([OLD, NEW, URGENT])[0] == URGENT


@pytest.mark.parametrize("sequence", [fifo, lifo])
def test_it_orders_sessions_of_the_same_moment_in_one_way_only(sequence):
    twins = [a_session(name, age=1) for name in "abcd"]
    assert sequence(twins) == sequence(twins[::-1])


def test_it_names_the_sequences_that_there_are_when_asked_for_another():
    with pytest.raises(ValueError, match="fifo, lifo"):
        sequence_named("random")
