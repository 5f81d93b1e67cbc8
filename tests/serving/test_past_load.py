"""What plots and replays make of the counters of app proxies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from backendai.domain.serving.models import Endpoint, ProxyReading
from backendai.domain.serving.presentation import points_of
from backendai.domain.serving.replaying import minutes_of
from tests.cast import Cast
from tests.serving.world import make_endpoint

pytestmark = pytest.mark.django_db
BEGIN = datetime(2026, 5, 4, 12, tzinfo=UTC)


def wave(endpoint: Endpoint, *loads: float, proxy: str = "one") -> None:
    """Write what a proxy that has run for a day counts when each minute has one of these loads; two requests a
    second and load, each of half a second."""
    busy, rows = 10_000.0, []
    for number, load in enumerate((0.0, *loads)):
        busy += 60 * load
        at, uptime = BEGIN + timedelta(minutes=number, seconds=-1), 86_400.0 + 60 * number
        counted = {"requests": round(2 * busy), "completions": round(2 * busy), "busy_seconds": busy}
        rows.append(ProxyReading(endpoint=endpoint, proxy=proxy, boot="b", at=at, uptime=uptime, **counted))
    ProxyReading.objects.bulk_create(rows)


def test_each_minute_has_its_own_load_however_long_the_proxy_has_run(cast: Cast) -> None:
    endpoint = make_endpoint(cast.alice)
    wave(endpoint, 8.0, 8.0, 0.0, 2.0)
    found = minutes_of(endpoint, BEGIN, BEGIN + timedelta(minutes=10))
    assert [round(one.load, 3) for one in found] == [8.0, 8.0, 0.0, 2.0]
    assert [one.requests for one in found] == [960, 960, 0, 240]


def test_the_loads_of_two_proxies_add_up(cast: Cast) -> None:
    endpoint = make_endpoint(cast.alice)
    wave(endpoint, 3.0, 0.0)
    wave(endpoint, 1.0, 4.0, proxy="two")
    found = minutes_of(endpoint, BEGIN, BEGIN + timedelta(minutes=10))
    assert [round(one.load, 3) for one in found] == [4.0, 4.0]


def test_plots_show_means_of_their_spans(cast: Cast) -> None:
    endpoint = make_endpoint(cast.alice)
    wave(endpoint, 8.0, 8.0, 0.0, 2.0)
    found = points_of(endpoint, BEGIN, BEGIN + timedelta(minutes=5), 5)
    assert [round(one.open, 3) for one in found] == [8.0, 8.0, 0.0, 2.0]
    assert [round(one.requests, 3) for one in found] == [16.0, 16.0, 0.0, 4.0]


def test_a_gap_in_the_readings_is_a_mean_and_no_peak(cast: Cast) -> None:
    endpoint = make_endpoint(cast.alice)
    wave(endpoint, 8.0, 8.0, 0.0, 2.0)
    ProxyReading.objects.filter(at__gte=BEGIN, at__lt=BEGIN + timedelta(minutes=3)).delete()
    found = minutes_of(endpoint, BEGIN, BEGIN + timedelta(minutes=10))
    assert [round(one.load, 3) for one in found] == [4.5]
