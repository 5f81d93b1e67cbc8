"""Ends that take too long."""

from __future__ import annotations

from unittest import mock

import pytest

from backendai.agent.backends.base import BackendError
from backendai.agent.ends import Ends
from backendai.agent.lanes import Claim
from backendai.agent.roster import Roster
from backendai.compute.models import Allocation
from backendai.compute.services.ending import terminate_session
from backendai.compute.services.node_view import work_for
from backendai.compute.services.reports import kernel_reported
from backendai.compute.status import Status
from backendai.wire.messages import KernelState
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
    assert "Node gone does not answer" in message_of(session, "end-unconfirmed")
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
    ends = Ends(engine, portal, Roster())
    ends.stop(grace, Claim(kernel.pk, kernel.generation, "stop"))
    session.refresh_from_db()
    assert (session.status == Status.TERMINATED) is told
    assert (engine.containers == {}) is told
