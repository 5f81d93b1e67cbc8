"""A clock that is set back: the passes go on at once, leases end, and silence counts from then on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest
from celery.beat import ScheduleEntry
from django.utils import timezone

from backendai.celery import app
from backendai.domain.cluster.models import Agent, PassLease
from backendai.domain.cluster.services import last_pass_at, reachable_since, record_reachability, take_lease
from backendai.ops.beat import SteadyScheduler
from backendai.portal.loops import clock, folders, forecasts, idle, loops
from backendai.portal.loops.repair import observe
from backendai.portal.loops.repair.lost_agents import mark_silent_agents
from tests.factories import make_agent

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
PASSES = {
    loops.PASS_LEASE, loops.REPAIR_LEASE, observe.OBSERVE_LEASE, idle.IDLE_LEASE, folders.FOLDERS_LEASE,
    forecasts.FORECASTS_LEASE,
}  # fmt: skip


@pytest.fixture
def ran() -> Iterator[list[str]]:
    """The passes that the clock has run, by lease."""
    names: list[str] = []
    with (
        mock.patch.object(loops, "run_pass", lambda now: names.append(loops.PASS_LEASE)),
        mock.patch.object(loops, "run_repair", lambda now: names.append(loops.REPAIR_LEASE)),
        mock.patch.object(observe, "run_observe", lambda now: names.append(observe.OBSERVE_LEASE)),
        mock.patch.object(idle, "run_idle", lambda now: names.append(idle.IDLE_LEASE)),
        mock.patch.object(forecasts, "run_forecasts", lambda now: names.append(forecasts.FORECASTS_LEASE)),
        mock.patch.object(folders, "begin", lambda now: names.append(folders.FOLDERS_LEASE)),
    ):
        yield names


@pytest.mark.django_db
@pytest.mark.parametrize(("shown", "runs"), [(-HOUR, PASSES), (timedelta(seconds=1), set()), (HOUR, PASSES)])
def test_passes_that_ended_in_the_future_are_overdue(ran: list[str], shown: timedelta, runs: set[str]) -> None:
    now = timezone.now()
    PassLease.objects.bulk_create(PassLease(name=name, until=now, finished_at=now) for name in PASSES)
    clock.tick(lambda: now + shown)
    assert set(ran) == runs


@pytest.mark.django_db
def test_the_scheduler_passes_while_its_lease_is_from_the_future() -> None:
    now = timezone.now()
    PassLease.objects.create(name=loops.PASS_LEASE, owner="elsewhere:1:0:1", until=now + HOUR, finished_at=now + HOUR)
    clock.tick(lambda: now)
    ended = last_pass_at(loops.PASS_LEASE)
    assert ended is not None
    assert ended < now + MINUTE


@pytest.mark.django_db
@pytest.mark.parametrize(("ahead", "is_free"), [(HOUR, True), (3 * MINUTE, True), (MINUTE, False), (-MINUTE, True)])
def test_a_lease_that_runs_longer_than_one_can_is_free(ahead: timedelta, is_free: bool) -> None:
    now = timezone.now()
    PassLease.objects.create(name="one", owner="elsewhere:1:0:1", until=now + ahead)
    assert take_lease("one", "here:1:0:1", now=now, duration=MINUTE) is is_free


@pytest.mark.django_db
def test_silence_counts_from_when_the_clock_was_set_back() -> None:
    before = timezone.now()
    agent = make_agent()
    Agent.objects.update(last_seen_at=before)
    record_reachability(now=before, is_reachable=True, longest_gap=MINUTE)
    after = before - HOUR
    record_reachability(now=after, is_reachable=True, longest_gap=MINUTE)
    assert reachable_since(after) == after
    for seconds in (30, 60):
        record_reachability(now=after + timedelta(seconds=seconds), is_reachable=True, longest_gap=MINUTE)
        assert mark_silent_agents(after + timedelta(seconds=seconds)) == 0
    record_reachability(now=after + timedelta(seconds=90), is_reachable=True, longest_gap=MINUTE)
    assert mark_silent_agents(after + timedelta(seconds=90)) == 1
    agent.refresh_from_db()
    assert agent.status == Agent.Status.LOST


def test_beat_sends_at_once_after_the_clock_was_set_back() -> None:
    shown = [datetime(2030, 1, 1, 12, tzinfo=UTC)]
    sent: list[str] = []

    class Beat(SteadyScheduler):
        def apply_async(self, entry: ScheduleEntry, *args: Any, **kwargs: Any) -> None:
            sent.append(entry.name)

    with mock.patch.object(app, "now", lambda: shown[0]):
        beat = Beat(app, lazy=True, schedule={})
        beat.producer = None
        beat.update_from_dict(app.conf.beat_schedule)
        beat.tick()
        shown[0] -= HOUR
        for _ in app.conf.beat_schedule:
            assert beat.tick() < 60
    assert {"pass", "repair"} <= set(sent)
