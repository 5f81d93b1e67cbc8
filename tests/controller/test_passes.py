"""What fails in one session or one group stops nothing else, and two schedulers at once place nothing twice."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backendai.base.wire.messages import Note
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.cluster.services import record_sync
from backendai.domain.compute.auditing import World
from backendai.domain.compute.models import Allocation, ComputeSession, Kernel, SchedulingRecord
from backendai.domain.compute.services.placing.free_capacity import FreeCapacity
from backendai.domain.compute.status import Status
from backendai.domain.planning import deciding, queue
from backendai.domain.planning.amounts.free import room_in
from backendai.domain.planning.apply import apply_plan
from backendai.domain.planning.snapshot import read_snapshot
from backendai.ops.management.commands.audit import run_checks
from backendai.portal.loops import group_pass, loops
from backendai.portal.loops.loops import collector_paused
from backendai.portal.web.session.reasons.advice import wait_of
from backendai.scheduler.decide import decide
from backendai.scheduler.plan import Plan
from backendai.scheduler.snapshot import Snapshot
from tests.cast import Cast, make_cast
from tests.controller.clocks import sync_of
from tests.factories import make_agent, make_group, make_running_session, make_session, make_sessions

pytestmark = pytest.mark.postgres

SAFETY = ["I-01", "I-02", "I-03", "I-04", "I-05", "I-06", "I-07", "I-08"]


def status_of(session: ComputeSession) -> tuple[str, str]:
    session.refresh_from_db()
    return session.status, session.status_reason


def failing_on(session: ComputeSession) -> Callable[[Snapshot], Plan]:
    def decide_or_fail(snapshot: Snapshot) -> Plan:
        if any(one.id == session.pk for one in snapshot.pending):
            raise ZeroDivisionError("a strategy divides by nothing")
        return decide(snapshot)

    return decide_or_fail


@pytest.mark.django_db
def test_a_pass_takes_the_same_number_of_statements_for_ten_sessions_and_for_hundreds(cast: Cast) -> None:
    make_agent(cpu=1000, mem="1000g")
    make_session(cast.alice)
    loops.run_pass(timezone.now())  # makes the lease rows
    counts = []
    for number in (10, 300):
        make_sessions(cast.alice, number)
        with CaptureQueriesContext(connection) as captured:
            assert loops.run_pass(timezone.now()) == number
        counts.append(len(captured))
    assert counts[0] == counts[1]


@pytest.mark.django_db
def test_a_pass_in_which_nothing_fits_takes_a_fixed_number_of_statements_too(cast: Cast) -> None:
    make_agent(cpu=1)
    counts = []
    for number in (10, 60):
        make_sessions(cast.alice, number)
        ComputeSession.objects.update(slots={"cpu": "2"})
        Kernel.objects.update(slots={"cpu": "2"})
        loops.run_pass(timezone.now())
        with CaptureQueriesContext(connection) as captured:
            assert loops.run_pass(timezone.now()) == 0
        counts.append(len(captured))
    assert counts[0] == counts[1]


@pytest.mark.django_db
def test_a_session_that_cannot_be_read_is_told_so_and_the_others_start(cast: Cast) -> None:
    make_agent()
    bad, good = make_session(cast.alice), make_session(cast.bob)
    Kernel.objects.filter(session=bad).update(slots={"cpu": "many"})
    for _ in range(3):
        loops.run_pass(timezone.now())
    assert status_of(bad) == (Status.PENDING, "scheduler-error")
    assert status_of(good)[0] == Status.SCHEDULED
    record = SchedulingRecord.objects.get(session=bad, error_code="scheduler-error")
    assert record.attempts == 3
    assert bad.status_data["error"] in bad.status_message


@pytest.mark.django_db
def test_a_session_on_which_the_decision_fails_is_found_and_the_others_start(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_agent(cpu=32, mem="64g")
    sessions = [make_session(cast.alice) for _ in range(9)]
    monkeypatch.setattr(deciding, "decide", failing_on(sessions[4]))
    with caplog.at_level(logging.ERROR):
        assert loops.run_pass(timezone.now()) == 8
    assert status_of(sessions[4]) == (Status.PENDING, "scheduler-error")
    assert sessions[4].status_data["error"] in caplog.text
    assert "a strategy divides by nothing" in caplog.text
    monkeypatch.undo()
    assert loops.run_pass(timezone.now()) == 1


@pytest.mark.django_db
def test_while_the_engine_of_its_only_node_does_not_answer_a_session_waits_and_more_may_be_launched(cast: Cast) -> None:
    agent, session = make_agent(), make_session(cast.alice)
    dead = Note(code="engine-unreachable", message="It does not answer.")
    record_sync(agent, sync_of(capacity={}, draining=True, notes=[dead]), now=timezone.now())
    make_session(cast.alice)
    loops.run_pass(timezone.now())
    assert status_of(session) == (Status.PENDING, "no-agent-alive")
    assert not session.status_data["never"]
    agent.refresh_from_db()
    record_sync(agent, sync_of(), now=timezone.now())
    assert loops.run_pass(timezone.now()) == 2


@pytest.mark.django_db
@pytest.mark.parametrize("others", [0, 1])
def test_an_agent_that_can_start_nothing_gets_no_session_and_the_wait_names_its_fault(cast: Cast, others: int) -> None:
    agent, session = make_agent("broken"), make_session(cast.alice)
    for number in range(others):
        make_agent(f"small-{number}", cpu="0.1")
    fault = "The users of kernels cannot reach /srv/data/kernels (Permission denied)."
    record_sync(agent, sync_of(fault=fault), now=timezone.now())
    loops.run_pass(timezone.now())
    assert status_of(session) == (Status.PENDING, "agent-fault")
    session.refresh_from_db()
    assert f"Agent broken cannot start sessions: {fault}" in session.status_message
    assert not session.status_data["never"]
    advice = wait_of(session)
    assert advice is not None and advice.title == "Waiting for an administrator"
    assert room_in([agent.resource_group])[0].capacity["cpu"] == others * 100
    agent.refresh_from_db()
    assert record_sync(agent, sync_of(), now=timezone.now()), "the scheduler is woken"
    assert loops.run_pass(timezone.now()) == 1


@pytest.mark.django_db
def test_the_last_look_turns_away_a_placement_on_an_agent_with_a_fault(cast: Cast) -> None:
    agent = make_agent()
    assert FreeCapacity(agent.resource_group_id, [agent.pk], with_devices=False).names
    record_sync(agent, sync_of(fault="It is broken."), now=timezone.now())
    assert not FreeCapacity(agent.resource_group_id, [agent.pk], with_devices=False).names


@pytest.mark.django_db
def test_an_agent_whose_engine_never_answered_may_turn_out_to_have_anything(cast: Cast) -> None:
    agent = make_agent(capacity={})
    session = make_session(cast.alice)
    loops.run_pass(timezone.now())
    assert status_of(session)[0] == Status.PENDING
    assert not session.status_data["never"]
    record_sync(agent, sync_of(), now=timezone.now())
    assert loops.run_pass(timezone.now()) == 1


@pytest.mark.django_db
def test_a_strategy_that_was_removed_is_named_to_those_who_wait_and_other_groups_go_on(cast: Cast) -> None:
    broken, sound = make_group(), make_group("sound")
    make_agent()
    make_agent(group=sound)
    waiting, starting = make_session(cast.alice), make_session(cast.bob, resource_group="sound")
    ResourceGroup.objects.filter(pk=broken.pk).update(sequence="lottery")
    loops.run_pass(timezone.now())
    assert status_of(waiting) == (Status.PENDING, "wrong-group-rules")
    assert "lottery" in waiting.status_message
    assert status_of(starting)[0] == Status.SCHEDULED
    ResourceGroup.objects.filter(pk=broken.pk).update(sequence="fifo")
    assert loops.run_pass(timezone.now()) == 1


@pytest.mark.django_db
def test_a_group_whose_pass_fails_says_so_on_its_sessions_and_other_groups_go_on(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_group("broken"), make_group("sound")
    for name in ("broken", "sound"):
        make_agent(group=make_group(name))
    stuck, going = (make_session(cast.alice, resource_group=name) for name in ("broken", "sound"))

    def apply_or_fail(group: ResourceGroup, plan: Plan, **over: Any) -> Any:
        if group.name == "broken":
            raise OSError("the disk is full")
        return apply_plan(group, plan, **over)

    monkeypatch.setattr(group_pass, "apply_plan", apply_or_fail)
    for _ in range(2):
        loops.run_pass(timezone.now())
    assert status_of(stuck) == (Status.PENDING, "scheduler-error")
    assert "broken" in stuck.status_message
    assert SchedulingRecord.objects.get(session=stuck, error_code="scheduler-error").attempts == 2
    assert status_of(going)[0] == Status.SCHEDULED


@pytest.mark.django_db
def test_a_pass_that_the_database_puts_off_is_no_news_for_those_who_wait(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_agent()
    session = make_session(cast.alice)

    def held_elsewhere(*_: Any, **__: Any) -> Any:
        raise OperationalError("canceling statement due to lock timeout")

    monkeypatch.setattr(group_pass, "apply_plan", held_elsewhere)
    assert loops.run_pass(timezone.now()) == 0
    assert status_of(session) == (Status.PENDING, "")
    monkeypatch.undo()
    assert loops.run_pass(timezone.now()) == 1


@pytest.mark.django_db
def test_sessions_beyond_what_one_pass_looks_at_are_told_so_and_come_into_it_later(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (queue, group_pass):
        monkeypatch.setattr(module, "MOST_PER_PASS", 2)
    make_agent(cpu=2)
    sessions = [make_session(cast.alice, resources={"cpu": 2, "mem": "1g"}) for _ in range(4)]
    loops.run_pass(timezone.now())
    reasons = [status_of(session)[1] for session in sessions]
    assert reasons[0] == ""
    assert reasons[1] not in ("", "beyond-this-pass")
    assert reasons[2:] == ["beyond-this-pass"] * 2
    assert sessions[3].queue_position is None
    loops.run_pass(timezone.now())
    assert status_of(sessions[2])[1] not in ("", "beyond-this-pass")
    assert status_of(sessions[3])[1] == "beyond-this-pass"


@pytest.mark.django_db
def test_where_round_robin_goes_on_outlives_the_process(cast: Cast) -> None:
    group = make_group(selection="round-robin")
    for name in ("n1", "n2", "n3"):
        make_agent(name)
    sessions = []
    for _ in range(3):
        sessions.append(make_session(cast.alice))
        loops.run_pass(timezone.now())
    assert [session.kernels.get().agent.name for session in sessions] == ["n1", "n2", "n3"]
    group.refresh_from_db()
    assert group.next_agent


@pytest.mark.django_db(transaction=True)
def test_two_schedulers_that_act_on_the_same_picture_place_every_session_once() -> None:
    alice, group = make_cast().alice, make_group()
    for _ in range(4):
        make_agent(cpu=4)
    make_sessions(alice, 24)
    reading = read_snapshot(group, timezone.now())
    plan, together, placed = decide(reading), threading.Barrier(2), []

    def scheduler() -> None:
        try:
            together.wait(30)
            placed.append(apply_plan(group, plan, now=timezone.now()))
        finally:
            connection.close()

    threads = [threading.Thread(target=scheduler) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(map(len, placed)) == [0, 16]
    assert Allocation.objects.values("kernel").distinct().count() == 16
    assert run_checks(World(timezone.now(), []), SAFETY) == {}


@pytest.mark.django_db(transaction=True)
def test_every_group_gets_its_pass_also_when_they_run_at_once() -> None:
    alice = make_cast().alice
    for number in range(6):
        make_agent(group=make_group(f"group-{number}"))
        make_session(alice, resource_group=f"group-{number}")
    assert loops.run_pass(timezone.now()) == 6
    assert not ComputeSession.objects.pending().exists()


def test_the_collector_rests_until_the_last_pass_has_ended() -> None:
    with pytest.raises(ZeroDivisionError), collector_paused():
        with collector_paused():
            pass
        assert not gc.isenabled()
        raise ZeroDivisionError
    assert gc.isenabled()


@pytest.mark.django_db
def test_tries_go_by_the_clock_and_not_by_how_often_others_hint_a_pass(cast: Cast) -> None:
    make_running_session(cast.bob, make_agent(cpu=1), resources={"cpu": 1, "mem": "512m"})
    session = make_session(cast.alice, resources={"cpu": 1, "mem": "512m"})
    now = timezone.now()
    for moment in (0.0, 0.1, 0.2, 0.3, 2.0, 2.1, 4.1):
        loops.schedule_group(session.resource_group_id, now + timedelta(seconds=moment))
    assert status_of(session)[0] == Status.PENDING
    assert session.attempts == 3
