"""What an agent says of storage hosts reaches the scheduler with its sync, alone or in a fleet."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from backendai.domain.cluster.joining import digest_of
from backendai.domain.storage.models import HostOnAgent
from bench.many_agents.messages import FleetNode, FleetUp
from tests.cast import Cast
from tests.controller.clocks import sync_of
from tests.factories import make_agent
from tests.mount_tools import storage_host

pytestmark = [pytest.mark.django_db, pytest.mark.urls("bench.many_agents.urls")]
TOKEN = "node_of_gpu-1"


def say(way: str, hosts: list[dict[str, Any]]) -> None:
    up = sync_of().model_copy(update={"storage_hosts": []})
    message: dict[str, Any] = up.model_dump(mode="json") | {"storage_hosts": hosts}
    if way == "fleet":
        node = FleetNode(token=TOKEN, up=up)
        whole = FleetUp(nodes=[node]).model_dump(mode="json")
        message = whole | {"nodes": [node.model_dump(mode="json") | {"up": message}]}
    headers = {"Authorization": f"Node {TOKEN}"}
    answer = Client().post(f"/node/v1/{way}", json.dumps(message), content_type="application/json", headers=headers)
    assert answer.status_code == 200, answer.content


@pytest.mark.parametrize("way", ["sync", "fleet"])
def test_the_rows_follow_what_the_agent_says(cast: Cast, way: str) -> None:
    agent = make_agent("gpu-1", token_digest=digest_of(TOKEN))
    storage_host("nas")
    say(way, [{"name": "nas", "fault": "x" * 900, "from_the_future": 1}, {"name": "unknown"}])
    row = HostOnAgent.objects.get(agent=agent)
    assert (row.host.name, len(row.fault)) == ("nas", 500)
    say(way, [{"name": "nas", "read_only": False}])
    row.refresh_from_db()
    assert (row.fault, row.can_read_only) == ("", False)
    say(way, [])  # an agent that reports none gets no kernel with folders
    assert not HostOnAgent.objects.exists()
