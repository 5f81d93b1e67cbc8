"""Idle sessions are warned, then ended: whatever happens in between, nobody is surprised."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backendai.base.core.messages import gaps
from backendai.scheduler.find_idle import (
    ALL,
    ANY,
    Finding,
    IdleKind,
    Recorded,
    Rule,
    Use,
    Verdict,
    Watched,
    find_idle,
)
from backendai.scheduler.idle_kinds import IDLE_KINDS
from tests.effort import examples

START = datetime(2026, 3, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LIFETIME, NETWORK, UTILIZATION = (IDLE_KINDS[name] for name in ("session-lifetime", "network-timeout", "utilization"))


def rule_of(kind: IdleKind = NETWORK, **over: object) -> Rule:
    values = {"limit": 60 * MINUTE, "grace": timedelta(0), "lead": 10 * MINUTE, "sign": "a"} | over
    return Rule(1, "checker", kind, **values)


def watched(rule: Rule, **over: object) -> Watched:
    values = {"started_at": START, "known_since": START, "is_reachable": True, "last_traffic": START} | over
    return Watched(uuid.UUID(int=1), rules=(rule,), **values)


def look(session: Watched, minutes: float) -> Finding:
    (found,) = find_idle([session], START + minutes * MINUTE)
    return found


def used(covered: float = 60, **shares: float | None) -> dict[int, Use]:
    return {1: Use({name.replace("_", "."): share for name, share in shares.items()}, covered * MINUTE)}


def warned(at: float, due: float, sign: str = "a") -> dict[int, Recorded]:
    return {1: Recorded(sign, START + at * MINUTE, START + due * MINUTE)}


def test_a_session_without_traffic_is_warned_and_then_collected() -> None:
    session = watched(rule_of())
    assert look(session, 49).verdict == Verdict.KEEP
    assert look(session, 49).due_at == START + 60 * MINUTE
    first = look(session, 50)
    assert (first.verdict, first.due_at, first.since) == (Verdict.WARN, START + 60 * MINUTE, START)
    recorded = replace(session, recorded=warned(50, 60))
    assert look(recorded, 59.9).verdict == Verdict.WARN
    assert look(recorded, 60).verdict == Verdict.COLLECT
    assert look(replace(recorded, last_traffic=START + 55 * MINUTE), 60).verdict == Verdict.KEEP


def test_a_late_warning_puts_the_end_off() -> None:
    session = watched(rule_of())
    assert look(session, 300).due_at == START + 310 * MINUTE
    assert look(replace(session, recorded=warned(300, 310)), 309).verdict == Verdict.WARN


def test_the_longest_run_needs_no_traffic_and_no_node() -> None:
    session = watched(rule_of(LIFETIME), last_traffic=START + 59 * MINUTE, is_reachable=False, recorded=warned(50, 60))
    assert look(session, 60).verdict == Verdict.COLLECT


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"last_traffic": None}, "traffic-unknown"),
        ({"is_reachable": False}, "not-reachable"),
        ({"known_since": START + 30 * MINUTE}, "in-use"),
    ],
)
def test_traffic_that_nobody_could_hear_of_is_no_silence(change: dict[str, object], code: str) -> None:
    found = look(replace(watched(rule_of()), **change), 60)
    assert (found.verdict, found.code) == (Verdict.KEEP, code)


def test_low_use_over_the_whole_window_counts_after_the_grace() -> None:
    rule = rule_of(UTILIZATION, grace=90 * MINUTE, thresholds={"cuda.device": 0.05})
    session = watched(rule, uses=used(cuda_device=0.01))
    assert look(session, 89).code == "grace"
    assert (look(session, 90).verdict, look(session, 90).due_at) == (Verdict.WARN, START + 100 * MINUTE)
    recorded = replace(session, recorded=warned(90, 100))
    assert look(recorded, 100).verdict == Verdict.COLLECT
    assert look(replace(recorded, uses=used(cuda_device=0.06)), 100).code == "in-use"
    assert look(replace(recorded, uses=used(40, cuda_device=0.0)), 100).code == "not-measured"
    assert look(replace(recorded, uses={}), 100).code == "not-measured"
    assert look(replace(recorded, is_reachable=False), 100).code == "not-reachable"


@pytest.mark.parametrize(
    ("match", "shares", "code"),
    [
        (ALL, {"cpu": 0.01, "cuda_device": 0.01}, "near-end"),
        (ALL, {"cpu": 0.5, "cuda_device": 0.01}, "in-use"),
        (ANY, {"cpu": 0.5, "cuda_device": 0.01}, "near-end"),
        (ANY, {"cpu": 0.5, "cuda_device": 0.5}, "in-use"),
        (ALL, {"cpu": 0.01}, "near-end"),  # it has no such device
        (ALL, {"cpu": 0.01, "cuda_device": None}, "not-measured"),
        (ANY, {"cpu": 0.5, "cuda_device": None}, "not-measured"),
        (ANY, {"cpu": 0.01, "cuda_device": None}, "near-end"),
        (ALL, {"mem": 0.01}, "nothing-to-measure"),
    ],
)
def test_all_or_any_of_what_it_has_must_be_below(match: str, shares: dict[str, float | None], code: str) -> None:
    rule = rule_of(UTILIZATION, thresholds={"cpu": 0.05, "cuda.device": 0.05}, match=match)
    assert look(watched(rule, uses=used(**shares)), 200).code == code


def test_a_session_that_works_by_itself_is_not_without_traffic() -> None:
    rule = rule_of(thresholds={"cpu": 0.1})
    assert look(watched(rule, uses=used(cpu=0.9)), 300).code == "in-use"
    assert look(watched(rule), 300).code == "not-measured"
    assert look(watched(rule, uses=used(cpu=0.01)), 300).verdict == Verdict.WARN


def test_an_extension_holds_and_is_warned_before_its_own_end() -> None:
    recorded = {1: Recorded(extended_until=START + 200 * MINUTE)}
    for rule in (rule_of(), rule_of(LIFETIME), rule_of(UTILIZATION, thresholds={"cpu": 0.5})):
        session = watched(rule, recorded=recorded, uses=used(cpu=0.0))
        assert look(session, 189).verdict == Verdict.KEEP
        assert (look(session, 190).verdict, look(session, 190).due_at) == (Verdict.WARN, START + 200 * MINUTE)


def test_another_rule_warns_anew() -> None:
    session = watched(rule_of(sign="b"), recorded=warned(50, 60, sign="a"))
    assert (look(session, 60).verdict, look(session, 60).due_at) == (Verdict.WARN, START + 70 * MINUTE)


@pytest.mark.parametrize("kind", IDLE_KINDS.values(), ids=IDLE_KINDS)
def test_the_texts_of_a_kind_have_no_other_gaps_than_are_filled(kind: IdleKind) -> None:
    rule = {"limit": "1h", "least": "CPU 5 %"}
    finding = rule | {"name": "quiet", "used": "CPU 1 %", "since": "2 h", "moment": "2026-03-01"}
    assert "quiet" in kind.warning.filled(finding) and "quiet" in kind.end.filled(finding)
    for text in (kind.sentence, kind.sentence_with_thresholds, kind.short, kind.help):
        assert not gaps(text.filled(rule))
    for text in (kind.help_with_thresholds, kind.help_without_thresholds, kind.ends):
        assert gaps(text) <= {"least", "when", "at"}


events = st.lists(
    st.tuples(
        st.integers(1, 40),
        st.sampled_from(
            ["look", "traffic", "lost", "back", "forgotten", "busy", "unused", "unmeasured", "changed", "extend"]
        ),
    ),
    max_size=60,
)
kinds = st.sampled_from(list(IDLE_KINDS.values()))


@settings(max_examples=examples(400), deadline=None)
@given(kinds, st.integers(20, 90), st.integers(0, 120), st.integers(1, 20), st.booleans(), events)
def test_whatever_happens_nobody_is_ended_without_an_active_warning(
    kind: IdleKind, limit: int, grace: int, lead: int, with_use: bool, steps: list[tuple[int, str]]
) -> None:
    """A long story of one session. What was told is kept as the loop keeps it: written when warned, else dropped."""
    may_use = not kind.thresholds_refused and (with_use or kind.thresholds_missing)
    thresholds = {"cpu": 0.1} if may_use else {}
    rule = rule_of(kind, limit=limit * MINUTE, grace=grace * MINUTE, lead=lead * MINUTE, thresholds=thresholds)
    session = watched(rule, uses=used(limit, cpu=0.0))
    now, warned_since, extended_until, last_heard = START, None, START, START
    for minutes, event in steps:
        now += minutes * MINUTE
        session, extended_until = happen(session, event, now, limit, extended_until)
        last_heard = now if event == "traffic" else last_heard
        rule = session.rules[0]
        found, again = next(find_idle([session], now)), next(find_idle([session], now))
        assert found == again
        recorded = session.recorded.get(1, Recorded())
        if found.verdict == Verdict.COLLECT:
            assert warned_since is not None and now - warned_since >= rule.lead
            assert recorded.sign == rule.sign and recorded.due_at is not None and now >= recorded.due_at
            assert now >= session.started_at + rule.grace and now >= extended_until
            if kind in (NETWORK, UTILIZATION):
                assert session.is_reachable
            if kind == NETWORK:
                assert session.last_traffic is not None and now - last_heard >= rule.limit
            if thresholds:
                assert session.uses[1].shares["cpu"] == 0.0
            return
        if found.verdict == Verdict.WARN:
            if recorded.warned_at is None or recorded.sign != rule.sign:
                warned_since = now
                recorded = Recorded(rule.sign, now, found.due_at, recorded.extended_until)
                assert found.due_at is not None and found.due_at - now >= rule.lead
            recorded = replace(recorded, due_at=found.due_at)
        else:
            warned_since, recorded = None, Recorded(extended_until=recorded.extended_until)
        session = replace(session, recorded={1: recorded})


def happen(
    session: Watched, event: str, now: datetime, limit: int, extended_until: datetime
) -> tuple[Watched, datetime]:
    recorded = session.recorded.get(1, Recorded())
    if event == "extend":
        extended_until = max(recorded.due_at or now, now) + 30 * MINUTE
        return replace(session, recorded={1: Recorded(extended_until=extended_until)}), extended_until
    changes: dict[str, dict[str, object]] = {
        "traffic": {"last_traffic": now},
        "lost": {"is_reachable": False},
        "back": {"is_reachable": True, "known_since": now},
        "forgotten": {"last_traffic": None},
        "busy": {"uses": used(limit, cpu=0.9)},
        "unused": {"uses": used(limit, cpu=0.0)},
        "unmeasured": {"uses": used(limit, cpu=None)},
        "changed": {"rules": (replace(session.rules[0], sign=session.rules[0].sign + "!"),)},
    }
    return replace(session, **changes.get(event, {})), extended_until
