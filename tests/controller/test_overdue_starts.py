"""Starts that take too long: ended by the node first, then tried again elsewhere, given up when no tries are left."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from backendai.base.wire.messages import KernelState
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.services import record_sync
from backendai.domain.compute.auditing import World
from backendai.domain.compute.models import Allocation, ComputeSession
from backendai.domain.compute.services.agents.kernel_specs import spec_for
from backendai.domain.compute.services.agents.node_view import work_for
from backendai.domain.compute.services.life.ending import Ended, end_each, terminate_session
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.status import Status
from backendai.ops.management.commands.audit import run_checks
from backendai.portal.loops.repair import overdue_starts
from backendai.portal.loops.repair.rounds import repair
from tests.cast import Cast
from tests.controller.clocks import later, message_of, only_kernel, passes_went_on_until, repair_at, rows, sync_of
from tests.factories import make_agent, make_group, make_session, place, report_of

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]
SLOW_START = ("start", "EXPIRED", "start-timeout", 1)


def placed(cast: Cast, agent: Agent, **over: object) -> ComputeSession:
    session = make_session(cast.alice, **over)
    place(session, agent)
    return session


def test_a_start_that_is_overdue_is_ended_by_its_node_before_it_is_tried_elsewhere(cast: Cast) -> None:
    agent = make_agent("slow")
    session = placed(cast, agent)
    repair_at(later(minutes=2, seconds=50))
    assert only_kernel(session).status == Status.SCHEDULED
    repair_at(later(minutes=4))
    session.refresh_from_db()
    assert session.status == Status.SCHEDULED
    assert [order.kernel_id for order in work_for(agent, [], want_images=False).stop] == [only_kernel(session).pk]
    assert Allocation.objects.exists()
    assert rows(session)[-1] == SLOW_START
    assert "slow left main1 scheduled for 4 min" in message_of(session, "start-timeout")
    kernel_reported(agent, report_of(only_kernel(session), KernelState.TERMINATED))
    session.refresh_from_db()
    assert (session.status, session.retries, session.avoid_agents) == (Status.PENDING, 1, [str(agent.pk)])
    assert not Allocation.objects.exists()
    assert rows(session)[-1] == ("start", "NEED_RETRY", "start-timeout", 1)
    assert run_checks(World(later(minutes=4))) == {}


def test_an_agent_whose_machines_are_emulated_gets_the_time_that_it_gives_a_start(cast: Cast) -> None:
    agent = make_agent("emulated")
    record_sync(agent, sync_of(slowness=4), now=later(seconds=0))
    agent.refresh_from_db()
    session = placed(cast, agent)
    assert spec_for(agent, only_kernel(session).pk).create_timeout == 480
    repair_at(later(minutes=8, seconds=50))
    assert only_kernel(session).status == Status.SCHEDULED
    assert run_checks(World(later(minutes=8, seconds=50))) == {}
    repair_at(later(minutes=9, seconds=10))
    assert only_kernel(session).status == Status.TERMINATING
    assert "the limit is 8 min" in message_of(session, "start-timeout")


def test_without_retries_left_an_overdue_start_ends_with_its_reason(cast: Cast) -> None:
    make_group(max_retries=0)
    agent = make_agent()
    session = placed(cast, agent)
    repair_at(later(minutes=4))
    session.refresh_from_db()
    assert (session.status, session.status_reason) == (Status.TERMINATING, "start-timeout")
    assert "for 4 min" in session.status_message
    kernel_reported(agent, report_of(only_kernel(session), KernelState.TERMINATED))
    session.refresh_from_db()
    assert session.status == Status.ERROR
    assert rows(session, error_code="start-timeout").count(SLOW_START) == 1


def test_a_start_that_succeeds_meanwhile_is_left_alone(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    make_group(max_retries=0)
    agent = make_agent()
    session = placed(cast, agent)

    def too_late(whys: Any, **rest: Any) -> Ended:
        kernel_reported(agent, report_of(only_kernel(session), KernelState.RUNNING))
        return end_each(whys, **rest)

    monkeypatch.setattr(overdue_starts, "end_each", too_late)
    passes_went_on_until(later(minutes=4))
    assert overdue_starts.end_starts(later(minutes=4)) == 0
    session.refresh_from_db()
    assert (session.status, only_kernel(session).status) == (Status.RUNNING, Status.RUNNING)


def test_an_image_may_take_as_long_as_the_group_gives_it(cast: Cast) -> None:
    agent = make_agent()
    session = placed(cast, agent)
    kernel_reported(agent, report_of(only_kernel(session), KernelState.PULLING))
    repair_at(later(minutes=30))
    assert only_kernel(session).status == Status.PULLING
    repair_at(later(minutes=32))
    assert only_kernel(session).status == Status.TERMINATING
    assert rows(session)[-1] == ("precondition", "EXPIRED", "pull-timeout", 1)
    assert "the limit is 30 min" in message_of(session, "pull-timeout")


def test_on_a_node_that_does_not_answer_nothing_is_tried_elsewhere(cast: Cast) -> None:
    agent = make_agent()
    session = placed(cast, agent)
    repair_at(later(minutes=4), silent=(agent,))
    session.refresh_from_db()
    assert (session.status, only_kernel(session).status) == (Status.SCHEDULED, Status.SCHEDULED)
    repair_at(later(minutes=10), silent=(agent,))
    session.refresh_from_db()
    assert (session.status, session.status_reason) == (Status.TERMINATING, "agent-lost")
    assert only_kernel(session).is_unconfirmed
    assert Allocation.objects.exists()


def test_a_node_that_falls_silent_before_it_confirms_ends_the_session(cast: Cast) -> None:
    agent = make_agent()
    session = placed(cast, agent)
    repair_at(later(minutes=4))
    repair_at(later(minutes=6), silent=(agent,))
    repair_at(later(minutes=12), silent=(agent,))
    session.refresh_from_db()
    assert (session.status, session.status_reason) == (Status.TERMINATING, "agent-lost")
    kernel_reported(agent, report_of(only_kernel(session), KernelState.TERMINATED))
    session.refresh_from_db()
    assert session.status == Status.ERROR
    assert not Allocation.objects.exists()


def test_a_start_gets_its_whole_time_again_when_its_node_is_back(cast: Cast) -> None:
    agent = make_agent()
    session = placed(cast, agent)
    repair_at(later(seconds=90), silent=(agent,))
    agent.refresh_from_db()
    assert agent.status == Agent.Status.LOST
    found = later(minutes=4)
    record_sync(agent, sync_of(), now=found)
    repair_at(found)
    repair_at(found + timedelta(minutes=2, seconds=50))
    assert only_kernel(session).status == Status.SCHEDULED
    repair_at(found + timedelta(minutes=3, seconds=10))
    assert only_kernel(session).status == Status.TERMINATING
    assert "for 3 min 10 s; the limit is 2 min" in message_of(session, "start-timeout")


def test_a_batch_program_that_its_node_began_while_nobody_listened_is_not_killed(cast: Cast) -> None:
    agent = make_agent()
    session = placed(cast, agent, session_type="batch", startup_command="sleep 1h")
    repair_at(later())
    Agent.objects.update(last_seen_at=later(hours=1))
    repair(later(hours=1))  # the control worker was down for an hour
    repair(later(hours=1, seconds=30))
    assert only_kernel(session).status == Status.SCHEDULED
    kernel_reported(agent, report_of(only_kernel(session), KernelState.RUNNING))
    session.refresh_from_db()
    assert (session.status, session.retries) == (Status.RUNNING, 0)


def test_a_start_is_overdue_again_when_nodes_have_been_heard_for_its_time(cast: Cast) -> None:
    agent = make_agent()
    session = placed(cast, agent)
    repair_at(later())
    for seconds in range(0, 240, 30):
        Agent.objects.update(last_seen_at=later(hours=1, seconds=seconds))
        repair(later(hours=1, seconds=seconds))
    assert only_kernel(session).status == Status.TERMINATING


def test_a_cluster_starts_again_when_all_its_kernels_have_ended(cast: Cast) -> None:
    first, second = make_agent("first"), make_agent("second")
    session = make_session(cast.alice, cluster_size=2)
    place(session, first)
    main, sub = session.kernels.order_by("rank")
    sub.agent = second
    sub.save()
    sub.allocations.update(agent=second)
    kernel_reported(first, report_of(main, KernelState.RUNNING))
    kernel_reported(second, report_of(sub, KernelState.TERMINATED, reason="failed-to-start", message="No device."))
    session.refresh_from_db()
    main.refresh_from_db()
    assert (session.status, main.status, main.status_reason) == (
        Status.SCHEDULED,
        Status.TERMINATING,
        "sibling-failed",
    )
    kernel_reported(first, report_of(main, KernelState.TERMINATED, exit_code=143))
    session.refresh_from_db()
    assert (session.status, session.avoid_agents) == (Status.PENDING, [str(second.pk)])
    assert {kernel.status for kernel in session.kernels.all()} == {Status.PENDING}
    assert message_of(session, "failed-to-start") == "sub1: No device. (attempt 1 of 4)"
    assert run_checks(World(later())) == {}


def test_a_batch_program_that_has_started_is_not_run_twice(cast: Cast) -> None:
    agent = make_agent()
    session = placed(cast, agent, cluster_size=2, session_type="batch", startup_command="true")
    main, sub = session.kernels.order_by("rank")
    kernel_reported(agent, report_of(main, KernelState.RUNNING))
    kernel_reported(agent, report_of(sub, KernelState.TERMINATED, reason="failed-to-start", message="No device."))
    session.refresh_from_db()
    assert (session.status, session.status_reason) == (Status.TERMINATING, "failed-to-start")


def test_its_owner_may_end_it_while_the_node_confirms(cast: Cast) -> None:
    agent = make_agent()
    session = placed(cast, agent)
    repair_at(later(minutes=4))
    session.refresh_from_db()
    terminate_session(session, cast.alice)
    kernel_reported(agent, report_of(only_kernel(session), KernelState.TERMINATED))
    session.refresh_from_db()
    assert (session.status, session.status_reason) == (Status.CANCELLED, "user-requested")


def test_it_asks_the_database_as_often_for_many_as_for_two(cast: Cast) -> None:
    make_group(max_retries=1)
    agent = make_agent(cpu=64, mem="64g")
    counts = []
    for number in (2, 22):
        for _ in range(number):
            placed(cast, agent)
        Agent.objects.update(last_seen_at=later(minutes=4))
        with CaptureQueriesContext(connection) as captured:
            repair_at(later(minutes=4))
        counts.append(len(captured))
    # What the pass notes about itself now and then takes up to six; one statement for each session would take twenty.
    assert counts[1] < counts[0] + 10, counts
