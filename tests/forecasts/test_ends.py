"""When batch sessions and runs are probably done."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.domain.compute.models import ComputeSession, SessionNotice
from backendai.domain.compute.services.notices.owners import warn_of_ends
from backendai.domain.forecasts.ends import run_ends, session_ends
from backendai.domain.forecasts.learning import learn_lengths
from backendai.portal.loops.loops import run_pipelines
from backendai.scheduler.forecasts.ends import StepWork, run_end, session_end
from backendai.scheduler.forecasts.lengths import with_length
from tests.factories import make_agent, make_running_session
from tests.forecasts.test_forecasts import ended_sessions
from tests.pages import markup
from tests.pipelines.world import ARRAY, end, launch, launch_text, pending, well
from tests.scheduler.worlds import NOW

HOUR = timedelta(hours=1)
BATCH = {"session_type": "batch", "startup_command": "python train.py"}


def counts_of(*hours: float) -> list[float]:
    counts: list[float] = []
    for each in hours:
        counts = with_length(counts, each * 3600)
    return counts


def work(name: str = "a", *, after: Any = (), each: Any = (), left: int = 0, ran: Any = (), at_once: int = 1,
         hours: float = 1.0) -> StepWork:  # fmt: skip
    counts = counts_of(*[hours] * 20) if hours else []
    return StepWork(
        name, frozenset(after), frozenset(each), left, [hour * HOUR for hour in ran], at_once, at_once, counts
    )


def hours(found: Any) -> tuple[float, float]:
    return (found.early - NOW) / HOUR, (found.late - NOW) / HOUR


def test_a_session_that_has_outlived_the_short_ones_is_expected_among_the_long() -> None:
    counts = counts_of(*[1, 8] * 20)
    fresh, old = (session_end([counts], NOW - ran * HOUR, NOW) for ran in (0, 3))
    assert fresh is not None and fresh.early - NOW < 2 * HOUR < 6 * HOUR < fresh.late - NOW
    assert old is not None and old.early - NOW > 2 * HOUR and old.early <= old.expected <= old.late
    assert session_end([counts], NOW - 50 * HOUR, NOW) is None, "nothing like it has run that long"
    assert session_end([counts_of(1, 1)], NOW, NOW) is None, "two are no sample"


@pytest.mark.parametrize(
    ("left", "ran", "at_once", "least", "most"),
    [(0, [0.5], 1, 0.1, 0.9), (9, [0.5], 1, 7, 12), (8, [0.5, 0.5], 2, 3, 6), (4, [], 4, 0.7, 1.4)],
)
def test_an_array_takes_as_long_as_its_elements_on_their_places(
    left: int, ran: Any, at_once: int, least: float, most: float
) -> None:
    found = run_end([work(left=left, ran=ran, at_once=at_once)], NOW)
    early, late = hours(found)
    assert least <= early <= late <= most


def test_a_pipeline_takes_its_longest_chain_and_names_its_longest_step() -> None:
    steps = [work("load", ran=[0]), work("train", after=["load"], left=1, hours=8), work("lint", left=1, hours=2),
             work("report", after=["train", "lint"], left=1)]  # fmt: skip
    found = run_end(steps, NOW)
    early, late = hours(found)
    assert 7 < early <= 10 <= late < 15
    assert found is not None and found.step == "train"


def test_elements_that_follow_their_own_one_do_not_wait_for_the_whole_step() -> None:
    first = work("first", left=10, at_once=10)
    whole, each = (run_end([first, work("second", left=10, at_once=10, **how)], NOW)
                   for how in ({"after": ["first"]}, {"each": ["first"]}))  # fmt: skip
    assert whole is not None and each is not None and each.late <= whole.late


def test_without_a_sample_of_a_step_that_is_left_nothing_is_said() -> None:
    assert run_end([work("a", left=1), work("b", after=["a"], left=1, hours=0)], NOW) is None
    assert run_end([work("a", left=1), work("b", hours=0)], NOW) is not None, "b is over"
    assert run_end([work("a")], NOW) is None


@pytest.mark.django_db
def test_a_batch_session_shows_its_likely_end_and_a_button_before_its_limit(cast: Any, client: Client) -> None:
    ended_sessions(cast.alice, 10, 2 * HOUR, **BATCH)
    session = make_running_session(cast.alice, make_agent("node-1"), **BATCH)
    now = timezone.now()
    client.force_login(cast.alice)
    address = reverse("web:session", args=[session.pk])
    assert "It is probably done between" not in markup(client.get(address))
    learn_lengths(now)
    shown = markup(client.get(address))
    assert "It is probably done between" in shown and "after its time limit" not in shown
    found = session_ends([session], now)[session.pk]
    assert 1 * HOUR < found.expected - now < 3 * HOUR
    started = now - HOUR
    ComputeSession.objects.update(started_at=started, ends_at=now + 10 * timedelta(minutes=1))
    assert warn_of_ends(now) == 1
    shown = markup(client.get(address))
    assert "after its time limit" in shown and 'id="notice-end-time"' in shown
    assert f'id="news-end-time-{session.pk}"' in markup(client.get(reverse("web:notifications")))
    assert SessionNotice.objects.filter(session=session, kind="ending").count() == 1


PIPELINE = """
name: nightly
defaults: {image: python, resources: {cpu: 1, mem: 512m}}
steps:
  load: {startup_command: load, array: 6}
  train: {startup_command: train, array: 6, after: [load]}
"""


@pytest.mark.django_db
def test_an_array_says_when_it_is_done_once_enough_elements_have_ended(
    cast: Any, client: Client, django_assert_num_queries: Any
) -> None:
    run = launch(cast.alice, **ARRAY, name="sweep", array=12)
    now = timezone.now()
    run_pipelines(now)
    client.force_login(cast.alice)
    address = reverse("web:run", args=[run.pk])
    assert 'id="run-end"' not in markup(client.get(address))
    done = pending(run)[:6]
    end(done, well, now)
    ComputeSession.objects.filter(pk__in=[one.pk for one in done]).update(started_at=now - HOUR, ended_at=now)
    run_pipelines(now)
    assert run_ends([run], now) == {}, "none runs, so nobody knows how many would run at once"
    ComputeSession.objects.filter(pk=pending(run)[0].pk).update(status="RUNNING", started_at=now)
    assert 'id="run-end"' in markup(client.get(address))
    assert "probably done between" in markup(client.get(reverse("web:runs")))
    with django_assert_num_queries(5):
        (found,) = run_ends([run], now).values()
    assert 4 * HOUR < found.early - now <= found.late - now < 9 * HOUR, "six hours one after the other"
    other = launch(cast.alice, **ARRAY, name="other", array=3)
    with django_assert_num_queries(5):
        assert set(run_ends([run, other], now)) == {run.pk}


@pytest.mark.django_db
def test_a_pipeline_knows_its_steps_from_earlier_runs_of_its_name(cast: Any, client: Client) -> None:
    now = timezone.now()
    first = launch_text(cast.alice, PIPELINE)
    assert run_ends([first], now) == {}
    for hours_long in (1, 3):
        run_pipelines(now)
        done = pending(first)
        end(done, well, now)
        rows = ComputeSession.objects.filter(pk__in=[one.pk for one in done])
        rows.update(started_at=now - hours_long * HOUR, ended_at=now)
    run_pipelines(now)
    first.refresh_from_db()
    assert first.status == "SUCCEEDED"
    run = launch_text(cast.alice, PIPELINE)
    run_pipelines(now)
    ComputeSession.objects.filter(pk__in=[one.pk for one in pending(run)]).update(status="RUNNING", started_at=now)
    (found,) = run_ends([run], now).values()
    assert found.step == "train"
    assert 3 * HOUR < found.early - now <= found.late - now < 6 * HOUR
    client.force_login(cast.alice)
    assert "Step train decides" in markup(client.get(reverse("web:run", args=[run.pk])))
