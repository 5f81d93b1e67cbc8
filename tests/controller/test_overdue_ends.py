"""Ends that take too long."""

from __future__ import annotations

from unittest import mock

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from backendai.agent.backends.base import BackendError
from backendai.agent.kernel_index import KernelIndex
from backendai.agent.kernel_queues import Claim
from backendai.agent.loop.ends import Ends
from backendai.base.wire.messages import KernelState
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.auditing import World
from backendai.domain.compute.models import Allocation, Kernel, SchedulingRecord
from backendai.domain.compute.services.agents.node_view import work_for
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.status import Status
from backendai.ops.management.commands.audit import run_checks
from backendai.portal.loops.repair.overdue_ends import force_ends
from tests.cast import Cast
from tests.controller.clocks import later, message_of, only_kernel, repair_at, rows
from tests.factories import make_agent, make_running_session, report_of
from tests.simulation import Container, FakeEngine

pytestmark = pytest.mark.django_db
FORCED = ("terminate", "EXPIRED", "terminate-timeout", 1)
UNCONFIRMED = ("terminate", "EXPIRED", "end-unconfirmed", 1)


def test_a_node_that_answers_is_told_to_kill_what_does_not_end_in_time(cast: Cast) -> None:
    agent = make_agent("stuck")
    session = make_running_session(cast.alice, agent)
    terminate_session(session, cast.alice)
    repair_at(later(seconds=55))
    assert [order.grace for order in work_for(agent, [], want_images=False).stop] == [5.0]
    repair_at(later(seconds=65))
    repair_at(later(seconds=95))
    assert [order.grace for order in work_for(agent, [], want_images=False).stop] == [0.0]
    assert rows(session).count(FORCED) == 1
    assert "the limit is 60 s. It is killed now" in message_of(session, "terminate-timeout")
    assert Allocation.objects.exists()
    kernel_reported(agent, report_of(only_kernel(session), KernelState.TERMINATED, exit_code=137))
    session.refresh_from_db()
    assert (session.status, session.status_reason) == (Status.TERMINATED, "user-requested")


def test_an_owner_who_forces_the_end_has_it_killed_at_once(cast: Cast) -> None:
    agent = make_agent()
    session = make_running_session(cast.alice, agent)
    terminate_session(session, cast.alice)
    terminate_session(session, cast.alice, force=True)
    assert [order.grace for order in work_for(agent, [], want_images=False).stop] == [0.0]


def test_what_ends_on_a_silent_node_is_unconfirmed_keeps_its_slots_and_is_said_once(cast: Cast) -> None:
    agent = make_agent("gone")
    session = make_running_session(cast.alice, agent)
    terminate_session(session, cast.alice)
    repair_at(later(minutes=2), silent=(agent,))
    repair_at(later(minutes=3), silent=(agent,))
    assert only_kernel(session).is_unconfirmed
    assert rows(session).count(UNCONFIRMED) == 1
    assert "Agent gone is unreachable" in message_of(session, "end-unconfirmed")
    assert work_for(agent, [], want_images=False).stop[0].grace == 5.0
    session.refresh_from_db()
    assert session.status == Status.TERMINATING
    assert Allocation.objects.exists()


def test_a_node_that_is_back_gets_its_deadline_again(cast: Cast) -> None:
    agent = make_agent()
    session = make_running_session(cast.alice, agent)
    terminate_session(session, cast.alice)
    repair_at(later(minutes=2), silent=(agent,))
    type(agent).objects.update(status="ALIVE", lost_at=None)
    repair_at(later(minutes=3))
    assert not only_kernel(session).is_unconfirmed
    assert rows(session)[-2:] == [UNCONFIRMED, FORCED]


def test_a_forced_end_that_stays_open_is_counted_in_one_row(cast: Cast) -> None:
    agent = make_agent("dead-engine")
    session = make_running_session(cast.alice, agent)
    terminate_session(session, cast.alice)
    for minutes in (2, 4, 6):
        repair_at(later(minutes=minutes))
    repair_at(later(minutes=6, seconds=30))
    ends = [row for row in rows(session) if row[2] == "terminate-timeout"]
    assert ends == [("terminate", "EXPIRED", "terminate-timeout", 3)]
    assert "told to kill main1 and has not ended it for 6 min" in message_of(session, "terminate-timeout")
    assert "may still run there" in message_of(session, "terminate-timeout")
    assert run_checks(World(later(minutes=2)), ["I-02", "I-07"]) == {}


def test_what_somebody_forced_and_stays_open_is_told_too(cast: Cast) -> None:
    session = make_running_session(cast.alice)
    terminate_session(session, cast.alice, force=True)
    repair_at(later(minutes=2))
    assert rows(session)[-1] == FORCED
    assert "told to kill main1" in message_of(session, "terminate-timeout")


def test_counting_open_ends_takes_the_same_number_of_statements_for_many_as_for_two(cast: Cast) -> None:
    agent, counts = make_agent(cpu=64, mem="64g"), []
    for number, minutes in ((2, 0), (12, 20)):
        for _ in range(number):
            terminate_session(make_running_session(cast.alice, agent), cast.alice, force=True)
        Kernel.objects.update(forced_at=later(minutes=minutes))
        Agent.objects.update(last_seen_at=later(minutes=minutes + 9))
        force_ends(later(minutes=minutes + 9))
        with CaptureQueriesContext(connection) as captured:
            force_ends(later(minutes=minutes + 12))
        counts.append(len(captured))
    assert counts[0] == counts[1]
    assert set(SchedulingRecord.objects.filter(error_code="terminate-timeout").values_list("attempts", flat=True)) > {2}


@pytest.mark.parametrize(("grace", "told"), [(5.0, False), (0.0, True)])
def test_a_log_that_cannot_be_read_holds_up_an_end_only_until_it_is_forced(
    cast: Cast, grace: float, told: bool
) -> None:
    class Mute(FakeEngine):
        def read_log(self, kernel_id, *, limit):
            raise BackendError("The engine does not give the log.")

    agent = make_agent()
    session = make_running_session(cast.alice, agent)
    terminate_session(session, cast.alice)
    kernel, engine = only_kernel(session), Mute()
    engine.containers[kernel.pk] = Container(kernel.generation)
    portal = mock.Mock(report=lambda report: kernel_reported(agent, report))
    ends = Ends(engine, portal, KernelIndex())
    ends.stop(grace, Claim(kernel.pk, kernel.generation, "stop"))
    session.refresh_from_db()
    assert (session.status == Status.TERMINATED) is told
    assert (engine.containers == {}) is told
