"""Limits of tests follow the machine."""

from __future__ import annotations

import pytest

from backendai.base.process.slowness import Measure
from tests import patience
from tests.patience import factor, patient, until
from tests.slow_machines import QUIET


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (QUIET, 2.0),  # other parts of the check may begin at any time
        (QUIET._replace(load=12.0), 6.0),
        (QUIET._replace(pace=2.0), 4.0),
        (QUIET._replace(pace=2.0, waiting=0.8), 10.0),
        (QUIET._replace(pace=9.0, load=99.0), 12.0),
    ],
)
def test_the_factor_is_measured(monkeypatch: pytest.MonkeyPatch, found: Measure, expected: float) -> None:
    monkeypatch.delenv("BACKENDAI_TEST_PATIENCE", raising=False)
    monkeypatch.setattr(patience, "measure", lambda: found)
    assert factor() == pytest.approx(expected)


@pytest.mark.parametrize(("told", "limit"), [("5", 50.0), ("0.1", 10.0)])
def test_or_told(monkeypatch: pytest.MonkeyPatch, told: str, limit: float) -> None:
    monkeypatch.setenv("BACKENDAI_TEST_PATIENCE", told)
    assert patient(10) == limit


def test_waiting_ends_with_the_answer_or_says_what_did_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKENDAI_TEST_PATIENCE", "2")
    answers = iter([0, "", 7])
    assert until(lambda: next(answers)) == 7
    with pytest.raises(AssertionError, match=r"not within 0 s: it rains \(last: 0\)"):
        until(lambda: 0, 0.01, "it rains")
