"""When schedules stop and resume: each day by the clock of a zone, an hour late at most."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

import pytest

from backendai.scheduler.stop_times import LATE, DailyTimes, Turn

NIGHT = DailyTimes(time(20), time(8), False, "Europe/Berlin")
WEEK = DailyTimes(time(20), time(8), True, "Europe/Berlin")
MINUTE = timedelta(minutes=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(("now", "expected"), [
    ("2026-11-30T18:59", None), ("2026-11-30T19:00", Turn.STOP), ("2026-11-30T19:59", Turn.STOP),
    ("2026-11-30T20:00", None), ("2026-12-01T07:00", Turn.RESUME), ("2026-12-01T06:59", None),
    ("2026-07-01T18:00", Turn.STOP),  # summer time
])  # fmt: skip
def test_a_moment_is_due_for_an_hour(now: str, expected: Turn | None) -> None:
    found = NIGHT.due(at(now))
    assert (found and found[1]) == expected
    assert found is None or at(now) - LATE < found[0] <= at(now)


def test_weekends_are_left_out_from_friday_evening_to_monday_morning() -> None:
    friday, monday = at("2026-12-04T19:00"), at("2026-12-07T07:00")
    assert WEEK.due(friday) == (friday, Turn.STOP)
    assert WEEK.due(at("2026-12-05T07:00")) is None and WEEK.due(at("2026-12-05T19:00")) is None
    assert WEEK.next(Turn.RESUME, friday) == monday and WEEK.due(monday) == (monday, Turn.RESUME)
    assert NIGHT.due(at("2026-12-05T19:00")) is not None


def test_of_two_moments_that_were_missed_the_later_counts() -> None:
    short = DailyTimes(time(20), time(20, 30), False, "UTC")
    assert short.due(at("2026-12-01T20:40")) == (at("2026-12-01T20:30"), Turn.RESUME)
    assert DailyTimes(time(20), None, False, "UTC").next(Turn.RESUME, at("2026-12-01T20:40")) is None


@pytest.mark.parametrize(("day", "expected"), [
    ("2026-03-29", "2026-03-29T01:30"),  # the clock skips 2:30: an hour later, at 3:30
    ("2026-10-25", "2026-10-25T00:30"),  # it shows 2:30 twice: the first counts
])  # fmt: skip
def test_a_moment_comes_once_when_the_clock_changes(day: str, expected: str) -> None:
    times = DailyTimes(time(2, 30), None, False, "Europe/Berlin")
    begin = at(f"{day}T00:00") - timedelta(hours=2)
    found = [times.due(begin + number * 5 * MINUTE) for number in range(12 * 24)]
    assert {one[0] for one in found if one} == {at(expected)}


def test_midnight_of_another_zone_is_of_its_own_day() -> None:
    far = DailyTimes(time(0), time(23, 59), False, "Pacific/Kiritimati")  # 14 hours ahead
    assert far.next(Turn.STOP, at("2026-11-30T09:30")) == at("2026-11-30T10:00")
    assert far.due(at("2026-11-30T10:30")) == (at("2026-11-30T10:00"), Turn.STOP)
