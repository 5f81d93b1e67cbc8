"""Strategies are chosen by name; an unknown name is refused."""

from __future__ import annotations

import pytest

from backendai.scheduler import sequences
from backendai.scheduler.sequence import Sequence
from backendai.scheduler.strategies import check_rules, describe_strategies, sequence_named
from tests.scheduler.worlds import a_session, an_agent, plan_of


def by_name(line):
    return sorted(line.sessions, key=lambda session: session.name)


@pytest.mark.parametrize(("sequence", "selection"), [("random", "concentrated"), ("fifo", "nearest")])
def test_it_names_the_strategies_that_there_are_when_asked_for_another(sequence, selection):
    with pytest.raises(ValueError, match=r"use one of .*(fifo|dispersed)"):
        check_rules(sequence, selection)


def test_it_has_the_strategies_of_the_product():
    described = {(each.level, each.name) for each in describe_strategies()}
    for name in ("fifo", "lifo", "drf", "fair-share"):
        assert ("sequence", name) in described
    for name in ("concentrated", "dispersed"):
        assert ("selection", name) in described
    assert all(each.label and "\n" not in each.label for each in describe_strategies())


def test_a_custom_sequence_is_one_function_chosen_by_name(monkeypatch):
    monkeypatch.setitem(sequences.SEQUENCES, "by-name", Sequence("by-name", "by the alphabet", by_name))
    sessions = [a_session(name, {"cpu": 8}, age=age) for name, age in (("b", 9), ("a", 1))]
    plan = plan_of([an_agent()], sessions, sequence="by-name")
    assert [placement.session_id for placement in plan.placements] == [sessions[1].id]
    check_rules("by-name", "concentrated")
    assert sequence_named("by-name").label == "by the alphabet"
