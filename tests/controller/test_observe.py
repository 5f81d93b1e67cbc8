"""The pass that counts: single over all workers, called by beat and by the worker's own clock."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import Sum
from django.utils import timezone

from backendai.celery import app
from backendai.domain.cluster.services import last_pass_at, take_lease
from backendai.domain.usage.models import UsageBucket
from backendai.portal.loops import clock, folders, tasks
from backendai.portal.loops.repair.observe import OBSERVE_LEASE, run_observe
from tests.cast import Cast
from tests.factories import make_running_session

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


def test_it_counts_and_notes_when_it_ended(cast: Cast) -> None:
    make_running_session(cast.alice)
    assert run_observe(timezone.now() + timedelta(seconds=60)) == 1
    counted = UsageBucket.objects.filter(slot="cpu").aggregate(all=Sum("amount_seconds"))["all"]  # two at a full hour
    assert counted == pytest.approx(60, abs=30)
    assert last_pass_at(OBSERVE_LEASE) is not None


def test_while_another_worker_counts_it_does_nothing(cast: Cast) -> None:
    make_running_session(cast.alice)
    now = timezone.now()
    assert take_lease(OBSERVE_LEASE, "elsewhere:1:2", now=now, duration=timedelta(minutes=1))
    assert run_observe(now + timedelta(seconds=30)) == 0
    assert not UsageBucket.objects.exists()
    assert run_observe(now + timedelta(minutes=2)) == 1


def test_beat_asks_for_it_every_five_minutes() -> None:
    entry = app.conf.beat_schedule["observe"]
    assert (entry["task"], entry["schedule"]) == (tasks.run_observe.name, 300)


def test_the_clock_runs_it_when_nobody_has_for_too_long(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "begin", lambda now: None)  # a thread, which would not see this test's rows
    make_running_session(cast.alice)
    clock.tick()
    first = last_pass_at(OBSERVE_LEASE)
    assert first is not None
    clock.tick()
    assert last_pass_at(OBSERVE_LEASE) == first
