"""Forecasts as the pass stores them, and their scores."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backendai.celery import app
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.status import Status
from backendai.domain.forecasts import foreseeing
from backendai.domain.forecasts.launches import ENDLESS
from backendai.domain.forecasts.learning import delete_old_lengths, learn_lengths
from backendai.domain.forecasts.models import ForecastScore, RunLengths, StartForecast
from backendai.domain.forecasts.scoring import delete_old_forecasts, score_forecasts
from backendai.portal.loops import forecasts, tasks
from backendai.scheduler.forecasts.ranges import ENOUGH, METHOD
from tests.factories import copy_of, make_agent, make_group, make_running_session, make_session

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]
HOUR = timedelta(hours=1)


def ended_sessions(owner: Any, number: int, length: timedelta, **over: Any) -> None:
    """Write ended sessions of this length, as copies of one that was launched."""
    first = make_session(owner, **over)
    now = timezone.now()
    ends = [now - timedelta(minutes=5 + each) for each in range(number)]
    ComputeSession.objects.bulk_create(
        copy_of(first, name=f"past-{at.timestamp()}", status=Status.TERMINATED, started_at=at - length, ended_at=at)
        for at in ends
    )
    first.delete()


def full_agent(cast: Any) -> ComputeSession:
    return make_running_session(cast.alice, make_agent("node-1", cpu=1), resources={"cpu": 1, "mem": "512m"})


def test_a_waiting_session_is_told_when_it_probably_starts(cast: Any) -> None:
    ended_sessions(cast.alice, 10, HOUR)
    learn_lengths(timezone.now())
    full_agent(cast)
    waiting = make_session(cast.alice)
    now = timezone.now()
    foreseeing.forecast_group(waiting.resource_group, now)
    told = StartForecast.objects.get(pk=waiting.pk)
    assert timedelta(minutes=30) < told.expected - now < timedelta(minutes=100)
    assert now <= told.early <= told.expected <= told.late <= told.latest
    assert (told.code, told.is_reliable, told.first_expected) == ("", False, told.expected)


def test_without_history_and_limits_it_says_how_many_have_no_end(cast: Any) -> None:
    full_agent(cast)
    waiting = make_session(cast.alice)
    foreseeing.forecast_group(waiting.resource_group, timezone.now())
    told = StartForecast.objects.get(pk=waiting.pk)
    assert (told.code, told.endless, told.expected) == (ENDLESS, 1, None)


def test_a_known_end_counts_though_there_is_no_history(cast: Any) -> None:
    running = full_agent(cast)
    now = timezone.now()
    ComputeSession.objects.filter(pk=running.pk).update(ends_at=now + 2 * HOUR)
    waiting = make_session(cast.alice)
    foreseeing.forecast_group(waiting.resource_group, now)
    assert StartForecast.objects.get(pk=waiting.pk).expected == now + 2 * HOUR


def test_a_group_whose_accelerators_have_ids_of_their_driver_is_foreseen(cast: Any) -> None:
    running = full_agent(cast)
    now = timezone.now()
    ComputeSession.objects.filter(pk=running.pk).update(ends_at=now + HOUR)
    running.kernels.update(devices={"cuda.device": {"GPU-3f0A-77": "1"}})
    waiting = make_session(cast.alice)
    foreseeing.forecast_group(waiting.resource_group, now)
    assert StartForecast.objects.get(pk=waiting.pk).expected == now + HOUR


def test_no_forecast_is_later_than_the_reserved_start(cast: Any) -> None:
    running = full_agent(cast)
    now = timezone.now()
    ResourceGroup.objects.update(backfill=True)
    ComputeSession.objects.filter(pk=running.pk).update(ends_at=now + 2 * HOUR)
    waiting = make_session(cast.alice)
    foreseeing.forecast_group(make_group(), now)
    told = StartForecast.objects.get(pk=waiting.pk)
    assert told.expected == told.late == told.latest == now + 2 * HOUR


def test_each_length_is_learned_once(cast: Any) -> None:
    ended_sessions(cast.alice, 10, HOUR)
    now = timezone.now()
    for _ in range(3):
        learn_lengths(now)
    assert {round(sum(row.counts)) for row in RunLengths.objects.all()} == {9}  # ten, of which older ones weigh less
    assert delete_old_lengths(now + timedelta(days=170)) == 0
    assert delete_old_lengths(now + timedelta(days=200)) == 5  # owner, image, command, group, type


def test_the_pass_asks_as_often_for_many_as_for_one(cast: Any) -> None:
    full_agent(cast)
    group = make_session(cast.alice).resource_group
    foreseeing.forecast_group(group, timezone.now())
    with CaptureQueriesContext(connection) as one:
        foreseeing.forecast_group(group, timezone.now())
    for _ in range(5):
        make_session(cast.bob)
    foreseeing.forecast_group(group, timezone.now())
    with CaptureQueriesContext(connection) as many:
        foreseeing.forecast_group(group, timezone.now())
    assert len(many) == len(one)


def test_beat_runs_the_pass_and_one_failing_group_does_not_stop_others(
    cast: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert app.conf.beat_schedule["forecasts"]["task"] == tasks.run_forecasts.name
    full_agent(cast)
    make_group("lab")
    waiting = [make_session(cast.alice), make_session(cast.alice, resource_group="lab")]
    real = foreseeing.forecast_group

    def fail_in_lab(group: Any, now: Any) -> int:
        if group.name == "lab":
            raise RuntimeError("no luck")
        return real(group, now)

    monkeypatch.setattr(forecasts, "forecast_group", fail_in_lab)
    monkeypatch.setattr(forecasts, "_ready", {})
    tasks.run_forecasts()
    assert list(StartForecast.objects.values_list("pk", flat=True)) == [waiting[0].pk]
    assert "no luck" in caplog.text


def test_the_first_forecast_is_scored_when_the_session_is_placed(cast: Any) -> None:
    running = full_agent(cast)
    now = timezone.now()
    ComputeSession.objects.filter(pk=running.pk).update(ends_at=now + HOUR)
    waiting, left = make_session(cast.alice), make_session(cast.alice)
    foreseeing.forecast_group(waiting.resource_group, now)
    ComputeSession.objects.filter(pk=waiting.pk).update(status=Status.RUNNING, scheduled_at=now + HOUR / 2)
    ComputeSession.objects.filter(pk=left.pk).update(status=Status.CANCELLED)
    score_forecasts(now + HOUR)
    told = StartForecast.objects.get(pk=waiting.pk)
    assert told.ratio == pytest.approx(0.5, abs=0.01)
    assert told.was_inside == (told.early <= now + HOUR / 2 <= told.late)
    assert not StartForecast.objects.filter(pk=left.pk).exists()
    score = ForecastScore.objects.get(pk=waiting.resource_group_id)
    assert (score.number, score.error_seconds, score.is_reliable) == (1, 1800, False)
    assert score.worst == [str(waiting.pk)]
    assert delete_old_forecasts(now + timedelta(days=200)) == 1


def test_a_group_with_enough_scores_is_reliable_and_narrow(cast: Any) -> None:
    running = full_agent(cast)
    now = timezone.now()
    ComputeSession.objects.filter(pk=running.pk).update(ends_at=now + HOUR)
    past = make_session(cast.alice)
    for number in range(ENOUGH):
        one = copy_of(past, name=f"past-{number}", status=Status.TERMINATED, scheduled_at=now + HOUR)
        one.save()
        StartForecast.objects.create(
            session=one, resource_group=past.resource_group, updated_at=now, method=METHOD,
            first_at=now, first_expected=now + HOUR, first_early=now, first_late=now + HOUR * 2,
        )  # fmt: skip
    score_forecasts(now)
    foreseeing.forecast_group(past.resource_group, now)
    told = StartForecast.objects.get(pk=past.pk)
    assert told.is_reliable
    assert told.late - told.early < timedelta(minutes=1)
