"""Old samples: one for five minutes, then none; what they say on the whole stays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession
from backendai.domain.usage.models import UsageSample
from backendai.domain.usage.samples import averages
from backendai.domain.usage.thinning import thin
from tests.cast import Cast
from tests.factories import make_agent, make_running_session

NOON = datetime(2036, 3, 10, 12, 0, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def agent(cast: Cast) -> Agent:
    return make_agent(cpu=16)


@pytest.fixture
def session(cast: Cast, agent: Agent) -> ComputeSession:
    return make_running_session(cast.alice, agent, resources={"cpu": 2, "mem": "512m"}, cluster_size=2)


def measure(session: ComputeSession, begin: datetime, number: int) -> None:
    """Write samples of ten seconds each, as ``keep`` does."""
    UsageSample.objects.bulk_create(
        UsageSample(
            kernel=kernel,
            at=begin + timedelta(seconds=10 * (place + 1)),
            seconds=10.0,
            cpu=float(place % 3),
            mem_bytes=100 * place,
            devices={"cuda.device": {"util": place / number}} if place % 2 else {},
            net_rx=5,
        )
        for kernel in session.kernels.all()
        for place in range(number)
    )


def test_fine_samples_are_put_together(session: ComputeSession) -> None:
    measure(session, NOON, 60)
    before = averages([session.pk], NOON, NOON + HOUR)
    assert thin(NOON + 2 * DAY) == 120 - 2 * 3  # at 12:05 sharp the second step begins, at 12:10 the third
    assert set(UsageSample.objects.values_list("is_thinned", flat=True)) == {True}
    after = averages([session.pk], NOON, NOON + HOUR)
    assert after[session.pk].covered_seconds == before[session.pk].covered_seconds == 600.0
    for slot, part in before[session.pk].slots.items():
        assert after[session.pk].slots[slot] == pytest.approx(part)
    assert sum(UsageSample.objects.values_list("net_rx", flat=True)) == 2 * 60 * 5
    assert thin(NOON + 2 * DAY) == 0


def test_accelerators_are_weighted_by_the_time_in_which_they_were_measured(session: ComputeSession) -> None:
    measure(session, NOON, 4)
    thin(NOON + 2 * DAY)
    assert [sample.devices for sample in UsageSample.objects.all()] == [{"cuda.device": {"util": 0.5}}] * 2


def test_young_samples_stay_as_they_are(session: ComputeSession) -> None:
    measure(session, NOON, 6)
    assert thin(NOON + 23 * HOUR) == 0
    assert UsageSample.objects.count() == 12


def test_the_oldest_go(session: ComputeSession) -> None:
    measure(session, NOON, 6)
    thin(NOON + 2 * DAY)
    measure(session, NOON + 8 * DAY, 3)
    assert thin(NOON + 8 * DAY) == 2
    assert UsageSample.objects.count() == 6


def test_one_call_does_a_bounded_part(session: ComputeSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backendai.domain.usage.thinning._MOST_STEPS", 1)
    measure(session, NOON, 60)
    thin(NOON + 2 * DAY)
    assert UsageSample.objects.filter(is_thinned=True).count() == 2
    assert UsageSample.objects.filter(is_thinned=False).exists()
