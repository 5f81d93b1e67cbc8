"""A portal on PostgreSQL and Redis with three nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from uuid import UUID

import pytest

from tests.agent.cluster_tools import HOSTILE
from tests.patience import until
from tests.system.client import fresh
from tests.system.platform import Platform
from tests.system.stores import Stores, stores

pytestmark = [pytest.mark.system, pytest.mark.docker, pytest.mark.usefixtures("tiny_image")]
NODES = 3
PER_NODE = 2  # sessions of one core


@pytest.fixture(scope="module")
def servers() -> Iterator[Stores]:
    with stores() as servers:
        yield servers


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, servers: Stores, tiny_image: None) -> Iterator[Platform]:
    """Three agents of two cores each, on one engine."""
    extra = {
        "DATABASE_URL": servers.database_url,
        "REDIS_URL": servers.redis_url,
        "BACKENDAI_AGENT_SLOTS": f"cpu={PER_NODE},mem=1g",
    }
    with Platform(tmp_path_factory.mktemp("three"), agents=NODES, extra=extra) as platform:
        yield platform
        assert "Traceback" not in platform.logs()


def test_it_spreads_launches_over_the_nodes_and_lets_the_rest_wait(platform: Platform) -> None:
    client = platform.client
    wish = {"cpu": 1, "mem": "64m"}
    launched = [client.launch(resources=wish)["id"] for _ in range(NODES * PER_NODE)]
    sessions = [client.wait_until_running(session_id) for session_id in launched]
    on_node = Counter(session["kernels"][0]["agent"] for session in sessions)
    assert on_node == {f"local-{number}": PER_NODE for number in range(1, NODES + 1)}
    assert platform.lives().keys() == {UUID(session["kernels"][0]["id"]) for session in sessions}

    late = client.launch(resources=wish)["id"]
    until(lambda: client.session(late)["status_reason"], 15, "the wait has a reason")
    assert client.session(late)["status_reason"] == "insufficient-resources"
    client.end(launched[0])
    node = client.wait_until_running(late)["kernels"][0]["agent"]
    assert node == sessions[0]["kernels"][0]["agent"]
    platform.audit()
    client.end(*launched[1:], late)


def test_it_takes_a_session_from_launch_to_the_last_trace(platform: Platform) -> None:
    client = platform.client
    free = client.group()["free"]
    session = client.wait_until_running(client.launch("first")["id"])
    with client.terminal(session["id"]) as terminal:
        terminal.run("echo $((6*7))", r"\b42\b")
    assert "Session first on main1" in client.log(session["id"])
    ended = client.end(session["id"])[0]
    assert (ended["status"], ended["status_reason"]) == ("TERMINATED", "user-requested")
    assert client.group()["free"] == free == {"cpu": str(NODES * PER_NODE), "mem": str(NODES * 2**30)}
    assert "Session first on main1" in client.log(session["id"])
    until(lambda: not platform.containers(), 10, "the container is gone")
    until(lambda: not platform.scratch_folders(), 10, "the scratch folder is gone", last=platform.scratch_folders)
    platform.audit()


def test_a_parameter_arrives_as_it_is_and_the_result_of_a_batch_session_is_kept(platform: Platform) -> None:
    client = platform.client
    command = 'printf "%s|%s" "$PARAM_WORDS" "$COPY"; exit 3'
    document = {"params": {"words": {"type": "text"}}, "environ": {"COPY": "${{ params.words }}"}, "type": "batch"}
    name = fresh("says")
    client.post(
        "templates/",
        {"name": name, "scope": "private", "document": document | {"image": "tiny", "startup_command": command}},
    )
    session = client.launch(template=f"private/{name}", parameters={"words": HOSTILE})
    ended = client.wait_for(session["id"], "TERMINATED")
    assert (ended["result"], ended["status_reason"]) == ("FAILED", "task-failed")
    # Docker ends the last line where the program did not.
    assert client.log(session["id"]).removesuffix("\n") == f"{HOSTILE}|{HOSTILE}"
