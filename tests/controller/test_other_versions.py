"""An agent of another version, or one whose words make no sense, is heard: none of its sessions ends for that."""

from __future__ import annotations

import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from django.test import Client
from django.utils import timezone

from backendai.agent.backends.docker.engine import Engine
from backendai.agent.backends.docker.images import DockerImages
from backendai.base.wire.messages import PROTOCOL
from backendai.domain.cluster.joining import digest_of
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.status import Status
from backendai.portal.loops.repair.lost_agents import end_lost_sessions, mark_silent_agents
from bench.many_agents.messages import FleetNode, FleetUp
from tests.cast import Cast
from tests.controller.clocks import passes_went_on_until, sync_of
from tests.factories import make_agent, make_running_session, make_session

pytestmark = [pytest.mark.django_db, pytest.mark.urls("bench.many_agents.urls")]
TOKEN = "node_of_gpu-1"


@pytest.fixture
def agent(cast: Cast) -> Agent:
    return make_agent("gpu-1", token_digest=digest_of(TOKEN), last_seen_at=timezone.now() - timedelta(minutes=10))


def sync(message: dict[str, Any], path: str = "sync") -> Any:
    headers = {"Authorization": f"Node {TOKEN}"}
    return Client().post(f"/node/v1/{path}", json.dumps(message), content_type="application/json", headers=headers)


def said(**over: Any) -> dict[str, Any]:
    return sync_of().model_dump(mode="json") | over


def test_a_later_agent_may_say_more_than_this_portal_knows(agent: Agent) -> None:
    assert sync(said(from_the_future=1, protocol=PROTOCOL + 1)).status_code == 200
    agent.refresh_from_db()
    assert agent.status == Agent.Status.ALIVE
    (note,) = agent.notes
    assert (note["code"], note["fix"]) == ("other-protocol", "Upgrade the portal.")
    assert sync(said()).status_code == 200
    agent.refresh_from_db()
    assert agent.notes == []


@pytest.mark.parametrize("way", ["sync", "fleet"])
def test_an_agent_whose_words_cannot_be_read_keeps_its_sessions_and_takes_no_others(
    cast: Cast, agent: Agent, way: str
) -> None:
    session, now = make_running_session(cast.alice, agent), timezone.now()
    passes_went_on_until(now)
    if way == "sync":
        answer = sync(said(capacity={"cpu": "many"}))
        assert answer.status_code == 400
    else:
        node = FleetNode(token=TOKEN, up=sync_of(capacity={"cpu": "many"}))
        answer = sync(FleetUp(nodes=[node]).model_dump(mode="json"), "fleet")
        assert answer.json()["nodes"][0]["status"] == 400
    mark_silent_agents(now + timedelta(seconds=30))
    end_lost_sessions(now + timedelta(seconds=30))
    agent.refresh_from_db()
    session.refresh_from_db()
    assert (agent.status, session.status) == (Agent.Status.DRAINING, Status.RUNNING)
    assert agent.notes[0]["code"] == "report-refused"
    assert "many" in agent.notes[0]["message"]


def test_a_message_of_another_shape_is_named_by_its_field(agent: Agent) -> None:
    assert sync(said(kernels="none")).status_code == 400
    agent.refresh_from_db()
    assert "kernels: " in agent.notes[0]["message"]


def test_one_image_that_cannot_be_told_does_not_silence_an_agent() -> None:
    listed = [
        {"Id": "a", "RepoTags": [f"{'n' * 250}:{'t' * 100}"], "Size": 1, "Labels": {}},
        {"Id": "b", "RepoTags": ["good:latest"], "Size": 1, "Labels": {}},
    ]
    client = SimpleNamespace(images=lambda: listed)

    class Asking:
        def __enter__(self) -> Any:
            return client

        def __exit__(self, *error: object) -> None:
            return None

    engine = SimpleNamespace(asking=Asking, client=client, image=lambda _: {"Architecture": "amd64"})
    assert [one.reference for one in DockerImages(cast_engine(engine)).sightings()] == ["good:latest"]


def cast_engine(engine: object) -> Engine:
    return cast(Engine, engine)


def test_the_next_good_report_makes_it_an_ordinary_agent_again(cast: Cast, agent: Agent) -> None:
    sync(said(capacity={"cpu": "many"}))
    sync(said())
    agent.refresh_from_db()
    assert (agent.status, agent.notes) == (Agent.Status.ALIVE, [])
    assert make_session(cast.alice).status == Status.PENDING
