"""Ends that an administrator forces: what a node holds that cannot be asked, or that cannot do what it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.base.wire.messages import Note
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.services import record_sync
from backendai.domain.compute.auditing import World
from backendai.domain.compute.models import Allocation, Kernel
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.status import Status
from backendai.ops.management.commands.audit import run_checks
from tests.cast import Cast
from tests.controller.clocks import later, only_kernel, repair_at, rows, sync_of
from tests.factories import make_agent, make_running_session, make_session, place

pytestmark = pytest.mark.django_db
DEAD_ENGINE = Note(code="engine-unreachable", message="It does not answer.")


def lose(agent: Agent) -> None:
    Agent.objects.filter(pk=agent.pk).update(status=Agent.Status.LOST, lost_at=later())


def test_a_superadmin_frees_what_a_node_with_a_dead_engine_does_not_kill(cast: Cast) -> None:
    agent = make_agent("node-7")
    session = make_running_session(cast.alice, agent)
    terminate_session(session, cast.alice)
    record_sync(agent, sync_of(draining=True, notes=[DEAD_ENGINE]), now=later())
    Kernel.objects.update(forced_at=later(seconds=-30))
    assert terminate_session(session, cast.dana, force=True).forced == set()  # its time to kill it is not over yet
    assert Allocation.objects.exists()
    Kernel.objects.update(forced_at=later(seconds=-70))
    assert terminate_session(session, cast.bob, force=True).forced == set()
    assert terminate_session(session, cast.dana, force=True).forced == {session.pk}
    session.refresh_from_db()
    kernel = only_kernel(session)
    assert (session.status, kernel.status, kernel.is_unconfirmed) == (Status.TERMINATED, Status.TERMINATED, True)
    assert "agent node-7 has not confirmed it and may still run it" in kernel.status_message
    assert not Allocation.objects.exists()


def test_a_cluster_stays_until_its_last_kernel_is_free(cast: Cast) -> None:
    agent = make_agent()
    session = make_running_session(cast.alice, agent, cluster_size=2)
    terminate_session(session, cast.alice, force=True)
    main, _ = session.kernels.order_by("rank")
    Kernel.objects.filter(pk=main.pk).update(forced_at=later(minutes=-5))
    assert terminate_session(session, cast.dana, force=True).forced == set()
    session.refresh_from_db()
    assert [session.status, *session.kernels.order_by("rank").values_list("status", flat=True)] == [
        "TERMINATING",
        "TERMINATED",
        "TERMINATING",
    ]


def test_what_never_ran_is_cancelled_with_its_first_reason(cast: Cast) -> None:
    agent = make_agent()
    session = make_session(cast.alice)
    place(session, agent)
    lose(agent)
    terminate_session(session, cast.alice)
    terminate_session(session, cast.dana, force=True)
    session.refresh_from_db()
    assert (session.status, session.status_reason) == (Status.CANCELLED, "user-requested")
    assert run_checks(World(later()), ["I-02", "I-03", "I-07"]) == {}


def test_what_the_platform_failed_ends_as_an_error(cast: Cast) -> None:
    agent = make_agent()
    session = make_running_session(cast.alice, agent)
    repair_at(later(minutes=2), silent=(agent,))
    repair_at(later(minutes=8), silent=(agent,))
    session.refresh_from_db()
    terminate_session(session, cast.dana, force=True)
    session.refresh_from_db()
    assert (session.status, session.status_reason) == (Status.ERROR, "agent-lost")
    assert rows(session)[-1] == ("terminate", "SUCCESS", "force-terminated", 1)


def test_what_depends_on_it_ends_with_it_and_its_group_is_scheduled(
    cast: Cast, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    agent = make_agent()
    batch = {"session_type": "batch", "startup_command": "true"}
    session = make_running_session(cast.alice, agent, **batch)
    dependent = make_session(cast.alice, depends_on=[session.name], **batch)
    lose(agent)
    with mock.patch("backendai.base.wire.broker.hints.hint") as hint, django_capture_on_commit_callbacks(execute=True):
        terminate_session(session, cast.dana, force=True)
    dependent.refresh_from_db()
    assert (dependent.status, dependent.status_reason) == (Status.CANCELLED, "dependency-failed")
    assert mock.call("controller.schedule_group", session.resource_group_id, queue=CONTROL_QUEUE) in hint.mock_calls
