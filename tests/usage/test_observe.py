"""Counting what sessions held: all of it, on the right day, exactly once whatever happens."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from backendai.base.wire.messages import KernelState
from backendai.domain.accounts.models import User
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.life.ending import end_sessions
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.placing.place import Assignment, place_sessions
from backendai.domain.compute.services.status.moves import StatusCause
from backendai.domain.compute.status import Phase, Status
from backendai.domain.usage import services
from backendai.domain.usage.models import ObservationMark, ObservedKernel, UsageBucket
from backendai.domain.usage.services import observe
from tests.cast import Cast, make_cast
from tests.factories import make_agent, make_group, make_image, make_session, report_of

NOON = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
MIB = 2**20


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def begin(owner: User, agent: Agent, when: datetime, **over: Any) -> ComputeSession:
    """Return a session that was placed at that moment."""
    values = {"resources": {"cpu": 2, "mem": "512m"}} | over
    return place_at(make_session(owner, **values), agent, when)


def place_at(session: ComputeSession, agent: Agent, when: datetime) -> ComputeSession:
    kernels = {kernel.pk: agent.pk for kernel in session.kernels.all()}
    assert place_sessions(session.resource_group_id, [Assignment(session.pk, kernels)], now=when)
    session.refresh_from_db()
    return session


def report(session: ComputeSession, agent: Agent, state: KernelState, when: datetime, **over: Any) -> None:
    for kernel in session.kernels.all():
        assert kernel_reported(agent, report_of(kernel, state, **over), now=when)


def end(session: ComputeSession, agent: Agent, when: datetime) -> None:
    end_sessions([session.pk], StatusCause(Phase.TERMINATE, "user-requested"), now=when)
    report(session, agent, KernelState.TERMINATED, when)
    session.refresh_from_db()
    assert session.is_terminal


def used(slot: str = "cpu", **filters: Any) -> float:
    rows = UsageBucket.objects.filter(slot=slot, **filters)
    return sum(rows.values_list("amount_seconds", flat=True))


@pytest.mark.django_db
def test_it_counts_amount_times_seconds_for_each_slot_and_whoever_held_it(cast: Cast) -> None:
    group, agent = make_group(), make_agent(cpu=16)
    begin(cast.alice, agent, at(0), cluster_size=2)
    begin(cast.bob, agent, at(50))
    assert observe(at(100)) == 3
    assert (used(user=cast.alice), used(user=cast.bob)) == (2 * 2 * 100, 2 * 50)
    assert used("mem", user=cast.alice) == 2 * 512 * MIB * 100
    bucket = UsageBucket.objects.get(user=cast.bob, slot="cpu")
    assert (bucket.resource_group, bucket.project, bucket.domain) == (group, cast.project, cast.project.domain)
    assert bucket.day == date(2026, 3, 10)


@pytest.mark.django_db
def test_what_waits_or_never_ran_is_not_counted(cast: Cast) -> None:
    waiting = make_session(cast.alice)
    make_session(cast.alice)
    end_sessions([waiting.pk], StatusCause(Phase.TERMINATE, "user-requested"), now=at(10))
    assert observe(at(100)) == 0
    assert not UsageBucket.objects.exists()


@pytest.mark.django_db
def test_looking_again_adds_only_what_came_since_and_twice_at_one_moment_nothing(cast: Cast) -> None:
    agent = make_agent()
    begin(cast.alice, agent, at(0))
    for seconds in (100, 100, 130, 130, 120):  # the last one by a clock that is late
        observe(at(seconds))
    assert used() == 2 * 130
    observe(at(200))
    assert used() == 2 * 200


@pytest.mark.django_db
def test_the_end_is_counted_to_the_second_and_nothing_after_it(cast: Cast) -> None:
    agent = make_agent()
    session = begin(cast.alice, agent, at(0))
    observe(at(100))
    end(session, agent, at(160))
    for seconds in (300, 600, 86_400):
        observe(at(seconds))
    assert used() == 2 * 160


@pytest.mark.django_db
def test_what_began_and_ended_between_two_looks_is_counted_once(cast: Cast) -> None:
    agent = make_agent()
    observe(at(0))
    end(begin(cast.alice, agent, at(10)), agent, at(40))
    for seconds in (300, 310, 900, 1200, 1800, 3600, 7200):
        observe(at(seconds))
    assert used() == 2 * 30
    assert not ObservedKernel.objects.exists(), "marks of what ended long ago are removed"


@pytest.mark.django_db
def test_a_placement_whose_history_is_seen_late_is_still_counted(cast: Cast) -> None:
    agent = make_agent()
    first = begin(cast.alice, agent, at(0))
    end(first, agent, at(30))
    observe(at(60))
    # Its rows get their numbers now, but its transaction ends after the next look: for that look it is not there.
    second = begin(cast.bob, agent, at(100))
    hidden = second.records.values_list("pk", flat=True)
    assert hidden
    observe(at(400))
    assert (ObservationMark.objects.get().record_id < min(hidden)) and used(user=cast.bob) == 2 * 300


@pytest.mark.django_db
def test_use_is_split_at_midnight(cast: Cast) -> None:
    agent = make_agent()
    midnight = datetime(2026, 3, 11, tzinfo=UTC)
    begin(cast.alice, agent, midnight - timedelta(seconds=100))
    observe(midnight + timedelta(days=1, seconds=50))
    days = dict(UsageBucket.objects.filter(slot="cpu").values_list("day", "amount_seconds"))
    assert days == {date(2026, 3, 10): 200, date(2026, 3, 11): 2 * 86_400, date(2026, 3, 12): 100}


@pytest.mark.django_db
def test_a_start_that_failed_is_counted_while_it_held_something_and_its_wait_is_not(cast: Cast) -> None:
    agent = make_agent()
    session = begin(cast.alice, agent, at(0))
    report(session, agent, KernelState.TERMINATED, at(20), reason="failed-to-start")
    session.refresh_from_db()
    assert session.status == Status.PENDING
    observe(at(100))
    assert used() == 2 * 20
    place_at(session, agent, at(200))
    observe(at(230))
    assert used() == 2 * 50
    end(session, agent, at(240))
    observe(at(900))
    assert used() == 2 * 60


@pytest.mark.django_db
def test_a_session_that_is_cancelled_after_it_went_back_to_wait_is_not_charged_for_waiting(cast: Cast) -> None:
    agent = make_agent()
    session = begin(cast.alice, agent, at(0))
    observe(at(10))
    report(session, agent, KernelState.TERMINATED, at(20), reason="failed-to-start")
    end_sessions([session.pk], StatusCause(Phase.TERMINATE, "user-requested"), now=at(5000))
    observe(at(6000))
    observe(at(9000))
    assert used() == 2 * 10


@pytest.mark.django_db
def test_the_first_look_on_an_older_platform_begins_with_what_is_placed(cast: Cast) -> None:
    agent = make_agent(cpu=8)
    end(begin(cast.alice, agent, at(-90_000)), agent, at(-80_000))
    begin(cast.bob, agent, at(-7200))
    observe(at(0))
    assert (used(user=cast.alice), used(user=cast.bob)) == (0, 2 * 7200)


@pytest.mark.django_db
def test_a_crash_in_the_middle_counts_nothing_and_loses_nothing(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(cast.alice, make_agent(), at(0))
    real = services.write_marks

    def crash(marks: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(services, "write_marks", crash)
    with pytest.raises(KeyboardInterrupt):
        observe(at(100))
    assert not UsageBucket.objects.exists()
    monkeypatch.setattr(services, "write_marks", real)
    observe(at(150))
    assert used() == 2 * 150


@pytest.mark.django_db
def test_the_number_of_statements_does_not_grow_with_the_kernels(cast: Cast) -> None:
    agent = make_agent(cpu=200, mem="200g")

    def statements(when: datetime) -> int:
        with CaptureQueriesContext(connection) as queries:
            observe(when)
        return len(queries)

    begin(cast.alice, agent, at(0))
    statements(at(50))  # the first look writes the mark
    few = statements(at(100))
    for number in range(12):
        begin(cast.bob if number % 2 else cast.alice, agent, at(110), cluster_size=2)
    assert statements(at(200)) == few
    assert few <= 15  # with the savepoints, and a lock on PostgreSQL


@pytest.mark.django_db(transaction=True)
def test_observers_at_once_count_everything_exactly_once() -> None:
    make_group()
    make_image()
    cast = make_cast()
    agent = make_agent(cpu=64, mem="64g")
    sessions = [begin(cast.alice, agent, at(0)) for _ in range(6)]
    end(sessions[0], agent, at(50))
    calls = 8

    def look(call: int, barrier: threading.Barrier, when: datetime) -> None:
        try:
            barrier.wait(60)
            observe(when + timedelta(seconds=call))
        finally:
            connection.close()

    for round_number in (1, 2, 3):
        barrier = threading.Barrier(calls)
        with ThreadPoolExecutor(calls) as pool:
            for future in [pool.submit(look, call, barrier, at(100 * round_number)) for call in range(calls)]:
                future.result(120)
    observe(at(1000))
    assert used() == 2 * (50 + 5 * 1000)


def test_amounts_by_day_add_up_to_the_whole() -> None:
    begin_at, end_at = at(-1234.5), at(3 * 86_400 + 17.25)
    parts = list(services._by_day(begin_at, end_at))
    assert sum(seconds for _, seconds in parts) == (end_at - begin_at).total_seconds()
    assert [day for day, _ in parts] == [date(2026, 3, 10 + number) for number in range(4)]
    assert list(services._by_day(end_at, begin_at)) == []
