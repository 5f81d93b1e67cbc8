"""The whole platform with sessions as pods of a real cluster, as people use it, and ``kill -9`` under load."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.agent.kubernetes_bed import bed, ensure_bed, kubectl, namespace
from tests.patience import until
from tests.system.client import Client
from tests.system.images import TINY
from tests.system.platform import Platform
from tests.system.tiny_replica import COMMAND, tiny_replica

pytestmark = [
    pytest.mark.system,
    pytest.mark.kubernetes,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("tiny_image"),
]
SMALL = {"cpu": "0.1", "mem": "32m"}
BURST = 8
OUTAGE = 90.0  # longer than the silence after which an agent counts as lost


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tiny_image: None) -> Iterator[tuple[str, Path]]:
    ensure_bed()
    if TINY not in bed("docker", "images", "--format", "{{.Repository}}:{{.Tag}}").split():
        bed("load", TINY)
    with namespace() as (name, said):
        path = tmp_path_factory.mktemp("kubernetes") / "config"
        path.write_text(yaml.safe_dump(said))
        yield name, path


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, place: tuple[str, Path]) -> Iterator[Platform]:
    extra = {
        "BACKENDAI_KUBERNETES_CONFIG": str(place[1]),
        "BACKENDAI_KUBERNETES_REACH": "direct",
        "BACKENDAI_AGENT_SLOTS": "cpu=2,mem=4g",
    }
    with Platform(tmp_path_factory.mktemp("pool"), backend="kubernetes", extra=extra) as platform:
        yield platform


def pods_of(name: str) -> dict[str, str]:
    """Return the pods in a namespace by name, with their uid."""
    found = json.loads(kubectl("-n", name, "get", "pods", "-o", "json"))["items"]
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in found}


def notes_of(client: Client) -> set[str]:
    """Return the codes of what the agent tells its administrators."""
    return {note["code"] for note in client.agents()[0]["notes"]}


@pytest.mark.long
def test_a_session_runs_with_terminal_and_log_and_leaves_nothing(platform: Platform, place: tuple[str, Path]) -> None:
    client = platform.client
    session = client.wait_until_running(client.launch(resources=SMALL)["id"])
    with client.terminal(session["id"]) as terminal:
        terminal.run("echo $((6*7))", r"\b42\b")
    assert session["name"] in client.log(session["id"])
    (ended,) = client.end(session["id"])
    assert (ended["status"], ended["status_reason"]) == ("TERMINATED", "user-requested")
    assert session["name"] in client.log(session["id"])
    until(lambda: not pods_of(place[0]), 30, "no pod is left")
    platform.audit()


@pytest.mark.ci
def test_a_replica_in_a_pod_answers_requests(platform: Platform, place: tuple[str, Path]) -> None:
    command = COMMAND.format(words="from-a-pod")
    with tiny_replica(platform.client, "pod", command, resources=SMALL) as answer:
        until(lambda: "from-a-pod" in answer(), 60, "the replica answers", last=answer)
    until(lambda: not pods_of(place[0]), 30, "no pod is left")


@pytest.mark.long
def test_a_pod_that_is_deleted_while_the_agent_is_away_ends_its_session_and_is_let_go(
    platform: Platform, place: tuple[str, Path]
) -> None:
    client = platform.client
    free = client.group()["free"]
    session = client.wait_until_running(client.launch(resources=SMALL)["id"])
    former = platform.kill("agent")
    kubectl("-n", place[0], "delete", "pods", "--all", "--wait=false", "--grace-period=1")
    platform.wait_for_restart("agent", former)
    ended = client.wait_for(session["id"], "TERMINATED", "ERROR", seconds=60)
    assert ended["status_reason"] == "pod-deleted"
    until(lambda: not pods_of(place[0]), 30, "its finalizer keeps no pod", last=lambda: pods_of(place[0]))
    until(lambda: client.group()["free"] == free, 10, "its slots are free")
    platform.audit()


@pytest.mark.long
def test_an_api_server_that_is_gone_for_minutes_ends_nothing(platform: Platform, place: tuple[str, Path]) -> None:
    client = platform.client
    free = client.group()["free"]
    running = client.wait_until_running(client.launch(resources=SMALL)["id"])
    before = pods_of(place[0])
    bed("kill", "apiserver")
    back_at = time.monotonic() + OUTAGE
    try:
        meanwhile = client.launch(resources=SMALL)["id"]
        until(lambda: "engine-unreachable" in notes_of(client), 60, "the agent tells of it", last=client.agents)
        while time.monotonic() < back_at:
            assert client.session(running["id"])["status"] == "RUNNING"
            assert client.session(meanwhile)["status"] not in ("ERROR", "CANCELLED", "TERMINATED")
            time.sleep(2)
    finally:
        bed("start", "apiserver")
    client.wait_until_running(meanwhile, 120)
    assert client.session(running["id"])["status"] == "RUNNING"
    assert before.items() <= pods_of(place[0]).items() and len(pods_of(place[0])) == 2
    until(lambda: "engine-unreachable" not in notes_of(client), 60, "the fault is over", last=client.agents)
    client.end(running["id"], meanwhile)
    until(lambda: not pods_of(place[0]), 60, "no pod is left", last=lambda: pods_of(place[0]))
    assert client.group()["free"] == free
    platform.audit()


@pytest.mark.long
@pytest.mark.parametrize("victim", ["agent", "apiserver"])
def test_a_kill_under_load_loses_doubles_and_leaves_nothing(
    platform: Platform, place: tuple[str, Path], victim: str
) -> None:
    client = platform.client
    free = client.group()["free"]
    bystander = client.wait_until_running(client.launch(resources=SMALL)["id"])
    before = pods_of(place[0])
    with ThreadPoolExecutor(BURST) as launchers:
        burst = [launchers.submit(client.launch, resources=SMALL) for _ in range(BURST)]
        [future.result() for future in burst[: BURST // 2]]
        if victim == "agent":
            former = platform.kill("agent")
        else:
            bed("kill", "apiserver")
            bed("start", "apiserver")
        sessions = [future.result()["id"] for future in burst]
    if victim == "agent":
        platform.wait_for_restart("agent", former)
    running = [client.wait_until_running(session, 120) for session in sessions]
    kernels = {kernel["id"] for session in [*running, bystander] for kernel in session["kernels"]}
    assert {name.removeprefix("krn-") for name in pods_of(place[0])} == kernels
    assert before.items() <= pods_of(place[0]).items(), "what ran goes on in the same pod"
    client.end(*sessions, bystander["id"])
    until(lambda: not pods_of(place[0]), 60, "no pod is left", last=lambda: pods_of(place[0]))
    assert client.group()["free"] == free == {"cpu": "2", "mem": str(2**32)}
    platform.audit()
