"""What each kind of scaling rules looks at, and what is not known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from backendai.domain.serving.measures import LONG, Reading, spans_of
from backendai.domain.serving.models import AutoScalingRule
from backendai.domain.serving.rule_kinds import RULE_KINDS, Measured

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def reading(proxy: str, uptime: float, requests: int, queued: int, answers: int) -> Reading:
    at = NOW - timedelta(seconds=30 - uptime)
    return Reading(proxy, "boot", at, uptime, requests, answers, 0.0, 0.0, 0, queued, 0, [0, 0, 0, answers])


def value(metric: str, readings: list[Reading], age: float = 0.0) -> float | None:
    rule = AutoScalingRule(metric=metric, value=7.5, value_at=NOW - timedelta(seconds=age))
    spans = [one for one in spans_of(readings, LONG) if one.seconds > 0]
    return RULE_KINDS[metric].value(rule, Measured(readings, spans, 2, 40.0, NOW))


@pytest.mark.parametrize(
    ("metric", "expected"), [("latency", 0.5), ("rate", 3.0), ("queue", 5.0), ("gpu", 40.0), ("prometheus", 7.5)]
)
def test_each_kind_has_its_value(metric: str, expected: float) -> None:
    counted = [reading("one", 15, 60, 9, 60), reading("one", 30, 120, 2, 120), reading("two", 30, 60, 3, 60)]
    assert value(metric, counted) == expected


@pytest.mark.parametrize("metric", ["latency", "rate", "queue"])
def test_what_no_proxy_has_counted_is_not_known(metric: str) -> None:
    assert value(metric, []) is None


def test_an_old_answer_to_a_query_is_not_known() -> None:
    assert (value("prometheus", [], 60), value("prometheus", [], 61)) == (7.5, None)
