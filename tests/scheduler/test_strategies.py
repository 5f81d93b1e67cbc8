"""Strategies are chosen by name, and their options are declared: a wrong one is refused, never ignored."""

from __future__ import annotations

import pytest

from backendai.scheduler import sequences
from backendai.scheduler.options import Option, check_options, own_options
from backendai.scheduler.sequence import Sequence
from backendai.scheduler.strategies import check_rules, describe_strategies, sequence_named
from tests.scheduler.worlds import a_session, an_agent, plan_of

DEPTH = Option("depth", "integer", 3, "How far to look.", least=1, most=9)
SHARE = Option("share", "number", 0.5, "How much to keep.", least=0)
EAGER = Option("eager", "boolean", False, "Whether to hurry.")


def by_name(line):
    return sorted(line.sessions, key=lambda session: session.name, reverse=bool(line.options["backwards"]))


@pytest.fixture
def custom(monkeypatch):
    options = (Option("backwards", "boolean", False, "From z to a."),)
    monkeypatch.setitem(
        sequences.SEQUENCES, "by-name", Sequence("by-name", "by the alphabet", by_name, options=options)
    )


def test_it_fills_in_what_is_not_given():
    assert check_options([DEPTH, EAGER], {"depth": 5}) == {"depth": 5, "eager": False}


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"dept": 5}, "no option is called 'dept': use one of depth, share, eager"),
        ({"depth": 10}, "option depth is 10: it must be between 1 and 9"),
        ({"depth": 0}, "option depth is 0: it must be between 1 and 9"),
        ({"share": -1}, "option share is -1: it must be at least 0"),
        ({"share": float("nan")}, "option share is nan: it must be at least 0"),
        ({"depth": 2.5}, "option depth must be of type integer, not 2.5"),
        ({"depth": True}, "option depth must be of type integer, not True"),
        ({"eager": 1}, "option eager must be of type boolean, not 1"),
        ({"depth": "3"}, "option depth must be of type integer, not '3'"),
    ],
)
def test_it_names_what_is_wrong_with_an_option(given, complaint):
    with pytest.raises(ValueError, match=complaint.replace("(", r"\(")):
        check_options([DEPTH, SHARE, EAGER], given)


def test_it_leaves_options_of_others_to_them():
    assert own_options([DEPTH], {"depth": 5, "speed": 3}) == {"depth": 5}


def test_it_refuses_an_option_that_neither_strategy_has():
    with pytest.raises(ValueError, match="no option is called 'num_retries'"):
        check_rules("fifo", "concentrated", {"num_retries": 3})


@pytest.mark.parametrize(("sequence", "selection"), [("random", "concentrated"), ("fifo", "nearest")])
def test_it_names_the_strategies_that_there_are_when_asked_for_another(sequence, selection):
    with pytest.raises(ValueError, match=r"use one of .*(fifo|dispersed)"):
        check_rules(sequence, selection, {})


def test_it_has_the_strategies_of_the_product():
    described = {(each.level, each.name) for each in describe_strategies()}
    for name in ("fifo", "lifo", "drf", "fair-share"):
        assert ("sequence", name) in described
    for name in ("concentrated", "dispersed"):
        assert ("selection", name) in described
    assert all(each.label and "\n" not in each.label for each in describe_strategies())


@pytest.mark.parametrize("each", describe_strategies(), ids=lambda each: each.name)
def test_every_default_of_an_option_is_in_its_own_range(each):
    defaults = {option.name: option.default for option in each.options}
    assert check_options(each.options, defaults) == defaults


@pytest.mark.usefixtures("custom")
def test_a_custom_sequence_is_one_function_chosen_by_name():
    sessions = [a_session(name, {"cpu": 8}, age=age) for name, age in (("b", 9), ("a", 1))]
    plan = plan_of([an_agent()], sessions, sequence="by-name")
    assert [placement.session_id for placement in plan.placements] == [sessions[1].id]
    backwards = plan_of([an_agent()], sessions, sequence="by-name", options={"backwards": True})
    assert [placement.session_id for placement in backwards.placements] == [sessions[0].id]
    assert check_rules("by-name", "concentrated", {"backwards": True}) == {"backwards": True}
    assert sequence_named("by-name").label == "by the alphabet"


@pytest.mark.usefixtures("custom")
def test_a_pass_refuses_a_wrong_option_as_well():
    with pytest.raises(ValueError, match="option backwards must be of type boolean"):
        plan_of([an_agent()], [a_session()], sequence="by-name", options={"backwards": "yes"})
