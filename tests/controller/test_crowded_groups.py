"""More sessions wait in a group than one pass looks at: nobody's queue keeps the sessions of others from starting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backendai.domain.compute.models import ComputeSession, SchedulingRecord
from backendai.domain.compute.status import Status
from backendai.domain.planning import queue
from backendai.domain.planning.beyond import waits_beyond
from backendai.domain.planning.explain import Verdict, explain
from backendai.domain.planning.snapshot import read_group, read_snapshot
from backendai.portal.loops import loops
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_running_session, make_session, make_sessions

pytestmark = pytest.mark.django_db
BATCH = {"session_type": "batch", "startup_command": "true"}


def look_at_most(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "MOST_PER_PASS", number)


def reasons_of(sessions: Sequence[ComputeSession]) -> Counter[str]:
    rows = ComputeSession.objects.filter(pk__in=[session.pk for session in sessions])
    return Counter(rows.values_list("status_reason", flat=True))


def names_looked_at() -> list[str]:
    return [session.name for session in read_snapshot(make_group(), timezone.now()).pending]


def depend(sessions: Sequence[ComputeSession], on: ComputeSession) -> None:
    through = ComputeSession.depends_on.through
    through.objects.bulk_create(through(from_computesession=one, to_computesession=on) for one in sessions)


@pytest.mark.ci
def test_ten_thousand_sessions_that_are_not_due_do_not_keep_another_persons_session_from_starting(cast: Cast) -> None:
    make_agent(cpu=8)
    now = timezone.now()
    early = make_sessions(cast.alice, queue.MOST_PER_PASS + 5, starts_at=now + timedelta(days=300), **BATCH)
    others = make_session(cast.bob)
    assert loops.run_pass(now) == 1
    others.refresh_from_db()
    assert others.status == Status.SCHEDULED
    assert reasons_of(early)["start-time-not-reached"] == queue.MOST_PER_PASS
    loops.run_pass(now)
    assert reasons_of(early) == {"start-time-not-reached": len(early)}


def test_sessions_that_wait_for_others_do_not_keep_another_persons_session_from_starting(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_at_most(3, monkeypatch)
    running = make_running_session(cast.alice, make_agent(), name="first")
    waiting = make_sessions(cast.alice, 6)
    depend(waiting, on=running)
    others = make_session(cast.bob)
    for _ in range(3):
        loops.run_pass(timezone.now())
    others.refresh_from_db()
    assert others.status == Status.SCHEDULED
    assert reasons_of(waiting) == {"dependency-not-finished": 6}
    told = ComputeSession.objects.get(pk=waiting[5].pk)
    assert told.status_message == "Waits for session first to succeed."
    assert told.status_data["names"] == ["first"]


def test_a_session_whose_time_has_come_is_looked_at(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    look_at_most(2, monkeypatch)
    make_agent()
    now = timezone.now()
    make_sessions(cast.alice, 4, starts_at=now + timedelta(days=3), **BATCH)
    soon = make_session(cast.alice, starts_at=now + timedelta(hours=1), **BATCH)
    assert loops.run_pass(now) == 0
    assert loops.run_pass(now + timedelta(hours=2)) == 1
    soon.refresh_from_db()
    assert soon.status == Status.SCHEDULED


def test_each_owner_has_an_equal_part_and_what_one_leaves_goes_to_the_others(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = make_sessions(cast.alice, 9)
    some = make_sessions(cast.bob, 4)
    last = make_session(cast.charlie)
    look_at_most(7, monkeypatch)
    expected = [*many[:3], *some[:3], last]
    assert sorted(names_looked_at()) == sorted(session.name for session in expected)
    look_at_most(12, monkeypatch)
    assert sorted(names_looked_at()) == sorted(session.name for session in [*many[:7], *some, last])


def test_one_owner_alone_has_the_whole_window(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    look_at_most(5, monkeypatch)
    many = make_sessions(cast.alice, 9)
    assert names_looked_at() == [session.name for session in many[:5]]


@pytest.mark.parametrize(("sequence", "first"), [("fifo", 0), ("lifo", 5)])
def test_an_owners_sessions_come_by_priority_and_then_in_the_order_of_the_group(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, sequence: str, first: int
) -> None:
    look_at_most(4, monkeypatch)
    make_group(sequence=sequence)
    many = make_sessions(cast.alice, 6)
    for number, session in enumerate(many):
        ComputeSession.objects.filter(pk=session.pk).update(created_at=timezone.now() + timedelta(seconds=number))
    others = make_sessions(cast.bob, 3)
    ComputeSession.objects.filter(pk=many[3].pk).update(priority=90)
    ComputeSession.objects.filter(pk__in=[one.pk for one in others]).update(priority=20)
    found = names_looked_at()
    assert found[0] == many[3].name
    assert set(found[1:3]) < {session.name for session in others}
    assert found[3] == many[first].name


def test_those_left_out_are_told_once_and_have_no_position(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    make_agent(cpu=1)
    many = make_sessions(cast.alice, 6)
    loops.run_pass(timezone.now())  # takes the first, gives the others a position
    look_at_most(2, monkeypatch)
    others = make_session(cast.bob)
    for _ in range(4):
        loops.run_pass(timezone.now())
    left_out = many[3:]
    for session in left_out:
        session.refresh_from_db()
    assert {(one.status_reason, one.queue_position) for one in left_out} == {("beyond-this-pass", None)}
    told = SchedulingRecord.objects.filter(session__in=left_out, error_code="beyond-this-pass")
    assert [record.attempts for record in told] == [1] * 3
    explained = explain(left_out[0], cast.alice, now=timezone.now())
    assert explained.verdict == Verdict.WAITS
    assert "More than 2 sessions are pending in this group" in explained.message
    others.refresh_from_db()
    assert others.status_reason not in ("", "beyond-this-pass")


def test_a_crowded_group_is_read_in_a_fixed_number_of_statements(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    group, running = make_group(), make_running_session(cast.alice, make_agent(cpu=1))
    counts = []
    for number in (6, 40):
        look_at_most(2 * number, monkeypatch)  # of three times as many: some of each kind are left out, by any order
        depend(make_sessions(cast.alice, number), on=running)
        make_sessions(cast.alice, number, starts_at=timezone.now() + timedelta(days=3), **BATCH)
        make_sessions(cast.bob, number)
        with CaptureQueriesContext(connection) as captured:
            reading = read_group(group, timezone.now())
            assert len(waits_beyond(group, reading.looked_at, timezone.now())) > number
        counts.append(len(captured))
    assert counts[0] == counts[1]
