"""What other numbers would have done with a load of the past."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from backendai.scheduler.serving.replay import Minute, replay
from backendai.scheduler.serving.snapshot import EndpointView

BEGIN = datetime(2026, 5, 4, tzinfo=UTC)


def minutes(*loads: float) -> list[Minute]:
    return [
        Minute(BEGIN + timedelta(minutes=number), load, requests=round(60 * load)) for number, load in enumerate(loads)
    ]


def desired(view: EndpointView, *loads: float) -> list[int]:
    return [one.desired for one in replay(view, minutes(*loads))]


def test_a_wave_starts_replicas_and_ends_them_five_minutes_later() -> None:
    view = EndpointView(uuid4(), minimum=1, maximum=3, target=4.0)
    found = desired(view, *[2.0] * 3, *[10.0] * 5, *[2.0] * 10)
    assert found[:3] == [1, 1, 1]
    assert max(found) == 3
    assert (found[9], found[-1]) == (3, 1)


def test_a_smaller_target_would_have_taken_more_replicas() -> None:
    loads = [4.0] * 20
    less = desired(EndpointView(uuid4(), maximum=8, target=4.0), *loads)
    more = desired(EndpointView(uuid4(), maximum=8, target=1.0), *loads)
    assert (less[-1], more[-1]) == (1, 4)


def test_without_requests_it_falls_asleep_and_the_next_one_wakes_it() -> None:
    view = EndpointView(uuid4(), minimum=0, maximum=2, asleep_after=timedelta(minutes=15))
    found = desired(view, *[1.0] * 2, *[0.0] * 30, 1.0)
    assert (found[0], found[10], found[25], found[-1]) == (1, 1, 0, 1)
