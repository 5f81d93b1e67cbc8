"""What the plots of an endpoint show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from backendai.domain.serving.models import ScalingRecord
from backendai.domain.serving.presentation import Point
from backendai.portal.web.endpoints.plots import HEIGHT, WIDTH, Window, plots_of, window_of

BEGIN = datetime(2026, 5, 4, 12, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return BEGIN + timedelta(minutes=minutes)


def test_replicas_and_accelerators_stand_beside_requests_with_each_change_marked() -> None:
    points = [Point(at(minute), 1.0, 2, 0, 0.0, None) for minute in range(1, 7)]
    changes = [
        ScalingRecord(code="load-grew", before=1, after=3, created_at=at(2.5), message="More load."),
        ScalingRecord(code="load-fell", before=3, after=2, created_at=at(4.5), message="Less load."),
    ]
    plots = plots_of(points, Window(at(7)), changes, [(at(0), 0.5), (at(4), 1.0)], 2)
    assert [len(one.marks) for one in plots] == [2] * 5
    assert "1 → 3. More load." in plots[0].marks[0].title
    assert [round(one.x / 8) for one in plots[0].columns] == [54, 55, 56, 57, 58, 59]  # minutes of the hour
    replicas, accelerators = plots[3:]
    assert [round(3 * one.height / HEIGHT) for one in replicas.columns] == [1, 1, 3, 3, 2, 2]
    assert (accelerators.most, accelerators.now) == ("100 %", "100 %")
    assert [round(one.height / HEIGHT, 1) for one in accelerators.columns] == [0.5, 0.5, 0.5, 0.5, 1.0, 1.0]


def test_without_accelerators_and_changes_the_number_is_that_of_now() -> None:
    plots = plots_of([Point(at(1), 0.0, 0, 0, 0.0, None)], Window(at(2)), desired=2)
    assert len(plots) == 4
    assert (plots[-1].now, plots[-1].marks) == ("2", ())
    assert len(plots_of([], Window(at(0)))) == 3


def test_plots_of_a_young_endpoint_show_its_own_time_at_least_ten_minutes_and_no_empty_columns() -> None:
    ages = [(0, 10), (9, 10), (12.5, 13), (50, 50), (400, 60)]
    assert [window_of(at(-age), at(0)).minutes for age, _ in ages] == [minutes for _, minutes in ages]
    window = window_of(at(0), at(10))
    resting = [Point(at(second / 60), 1.0, 0, 0, 0.0, None) for second in range(10, 600, 10)]
    plot = plots_of(resting, window)[0]
    assert (len(plot.columns), plot.width * window.columns) == (window.columns, WIDTH)
