"""Agents that fall silent: given up one by one, never because nobody could have heard them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from unittest import mock

import pytest
from django.urls import resolve
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from backendai.base.wire.messages import JoinUp
from backendai.domain.cluster.joining import create_join_token, join_agent
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.services import record_sync
from backendai.domain.compute.models import ComputeSession
from backendai.portal.loops.repair import reachability
from backendai.portal.loops.repair.reachability import door_answers
from backendai.portal.loops.repair.rounds import repair
from tests.cast import Cast
from tests.controller.clocks import later, sync_of
from tests.factories import make_agent, make_group, make_running_session, make_session, place

pytestmark = pytest.mark.django_db
DOOR = "backendai.portal.loops.repair.reachability.door_answers"
INTERVAL = 30


@pytest.fixture
def door() -> Iterator[mock.Mock]:
    """The portal's web door, open until a test shuts it."""
    with mock.patch(DOOR, return_value=True) as answers:
        yield answers


def passes(since: int, until: int, *heard: Agent) -> None:
    """Run the repair pass every 30 seconds between these seconds from now; the agents named are heard all the time."""
    for seconds in range(since, until, INTERVAL):
        Agent.objects.filter(pk__in=[agent.pk for agent in heard]).update(last_seen_at=later(seconds=seconds))
        repair(later(seconds=seconds))


def statuses() -> tuple[set[str], set[str]]:
    """Return those of all agents and of all sessions."""
    return set(Agent.objects.values_list("status", flat=True)), set(
        ComputeSession.objects.values_list("status", flat=True)
    )


def test_an_agent_that_joins_again_and_dies_before_its_first_sync_is_given_up(cast: Cast, door: mock.Mock) -> None:
    token = create_join_token(make_group(), name_prefix="n-", reusable=True)
    message = JoinUp(token=token, name="n-1", gateway_url="")
    agent, _ = join_agent(message)
    record_sync(agent, sync_of(), now=timezone.now())
    running, starting = make_running_session(cast.alice, agent), make_session(cast.alice)
    place(starting, agent)
    passes(0, 60)
    own = create_join_token(agent.resource_group, agent=agent)
    agent, _ = join_agent(JoinUp(token=own, name="n-1", gateway_url=""))
    assert agent.lost_at is not None
    passes(60, 600)
    assert statuses() == ({"LOST"}, {"TERMINATING"})
    assert set(running.kernels.values_list("is_unconfirmed", flat=True)) == {True}


def test_an_agent_found_lost_without_a_time_is_given_up_too(cast: Cast, door: mock.Mock) -> None:
    agent = make_agent()
    make_running_session(cast.alice, agent)
    Agent.objects.update(status=Agent.Status.LOST, lost_at=None)
    passes(0, 600)
    assert statuses() == ({"LOST"}, {"TERMINATING"})


def test_when_nobody_is_heard_and_the_door_is_shut_no_agent_is_lost_and_nothing_ends(
    cast: Cast, door: mock.Mock
) -> None:
    for _ in range(3):
        make_running_session(cast.alice, make_agent())
    passes(0, 60, *Agent.objects.all())
    door.return_value = False
    passes(60, 1800)
    assert statuses() == ({"ALIVE"}, {"RUNNING"})


@pytest.mark.ci
def test_when_the_door_opens_again_nodes_have_their_whole_time_to_knock(cast: Cast, door: mock.Mock) -> None:
    agents = [make_agent() for _ in range(3)]
    for agent in agents:
        make_running_session(cast.alice, agent)
    passes(0, 60, *agents)
    door.return_value = False
    passes(60, 1200)
    door.return_value = True
    passes(1200, 1230, agents[0])
    assert statuses() == ({"ALIVE"}, {"RUNNING"})
    passes(1230, 1500, *agents[:2])
    assert statuses() == ({"ALIVE", "LOST"}, {"RUNNING"})
    agents[2].refresh_from_db()
    assert agents[2].status == Agent.Status.LOST
    passes(1500, 1620, *agents[:2])
    assert statuses() == ({"ALIVE", "LOST"}, {"RUNNING", "TERMINATING"})


@pytest.mark.ci
def test_an_agent_lost_before_the_door_was_shut_gets_its_grace_again(cast: Cast, door: mock.Mock) -> None:
    agent, other = make_agent(), make_agent()
    make_running_session(cast.alice, agent)
    passes(0, 180, other)
    assert statuses() == ({"ALIVE", "LOST"}, {"RUNNING"})
    door.return_value = False
    passes(180, 1200)
    door.return_value = True
    passes(1200, 1470, other)
    assert statuses()[1] == {"RUNNING"}
    passes(1470, 1560, other)
    assert statuses()[1] == {"TERMINATING"}


def test_the_only_agent_of_a_platform_is_given_up_when_the_door_is_open(cast: Cast, door: mock.Mock) -> None:
    make_running_session(cast.alice, make_agent())
    passes(0, 150)
    assert statuses() == ({"LOST"}, {"RUNNING"})
    passes(150, 600)
    assert statuses() == ({"LOST"}, {"TERMINATING"})


def test_a_node_that_is_heard_proves_the_door_without_a_knock(cast: Cast, door: mock.Mock) -> None:
    heard, silent = make_agent(), make_agent()
    passes(0, 180, heard)
    silent.refresh_from_db()
    assert silent.status == Agent.Status.LOST
    assert not door.called


def test_without_any_node_nobody_knocks(door: mock.Mock) -> None:
    passes(0, 90)
    assert not door.called


def test_after_a_rest_of_the_control_worker_no_node_is_given_up_before_it_could_be_heard(
    cast: Cast, door: mock.Mock
) -> None:
    agent, lost = make_agent(), make_agent()
    make_running_session(cast.alice, agent)
    make_running_session(cast.alice, lost)
    passes(0, 180, agent)
    assert statuses() == ({"ALIVE", "LOST"}, {"RUNNING"})
    passes(7200, 7260)
    assert statuses() == ({"ALIVE", "LOST"}, {"RUNNING"})
    for one in (agent, lost):
        one.refresh_from_db()
        record_sync(one, sync_of(), now=later(seconds=7260))
    passes(7260, 7800, agent, lost)
    assert statuses() == ({"ALIVE"}, {"RUNNING"})


def test_the_first_pass_ever_gives_nobody_up(cast: Cast, door: mock.Mock) -> None:
    make_running_session(cast.alice, make_agent())
    Agent.objects.update(status=Agent.Status.LOST, lost_at=later(hours=-1), last_seen_at=later(hours=-1))
    repair(timezone.now())
    assert statuses() == ({"LOST"}, {"RUNNING"})


@pytest.mark.django_db(transaction=True)
def test_the_portal_answers_a_knock_as_long_as_it_is_at_work(live_server: LiveServer) -> None:
    resolve("/")  # imports every page, which is not what the knock waits for
    assert door_answers(live_server.url)
    assert door_answers(f"{live_server.url}/")


def test_a_door_where_nobody_listens_or_nobody_answers_is_shut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "_PATIENCE_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as hung:
        address = f"http://127.0.0.1:{hung.getsockname()[1]}"
        assert not door_answers(address)
    assert not door_answers(address)


def test_a_portal_that_fails_on_every_knock_is_shut(live_server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no database")

    monkeypatch.setattr("backendai.portal.agents.views.agent_of_token", fail)
    assert not door_answers(live_server.url)
