"""One session after another, from the launch to the last trace of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from uuid import UUID

import pytest

from tests.patience import until
from tests.system.client import TERMINAL, fresh
from tests.system.images import ensure_stillborn
from tests.system.platform import Platform
from tests.system.registry import empty_registry

pytestmark = [pytest.mark.core, pytest.mark.system, pytest.mark.docker, pytest.mark.usefixtures("tiny_image")]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, tiny_image: None) -> Iterator[Platform]:
    """One node with 4 cores. It must come through all tests without a restart and without a traceback."""
    with empty_registry() as registry:
        images = {
            "absent": f"{registry}/absent:latest",
            "unreachable": "127.0.0.1:1/absent:latest",
            "stillborn": ensure_stillborn(),
        }
        with Platform(tmp_path_factory.mktemp("life"), images=images) as platform:
            yield platform
            said = platform.logs()
            assert "starting it again" not in said
            assert "Traceback" not in said


def test_it_takes_a_session_from_launch_to_the_last_trace(platform: Platform) -> None:
    client = platform.client
    free = client.group()["free"]
    session = client.wait_until_running(client.launch("first")["id"])
    container = platform.containers()[UUID(session["kernels"][0]["id"])]
    assert container["Id"] == session["kernels"][0]["container_id"]
    with client.terminal(session["id"]) as terminal:
        terminal.run("echo $((6*7))", r"\b42\b")
    assert "Session first on main1: local/backendai-tiny:latest" in client.log(session["id"])
    assert client.group()["free"] == {"cpu": "3.5", "mem": str(2**31 - 2**26)}

    ended = client.end(session["id"])[0]
    assert (ended["status"], ended["status_reason"]) == ("TERMINATED", "user-requested")
    assert client.group()["free"] == free == {"cpu": "4", "mem": str(2**31)}
    assert "Session first on main1" in client.log(session["id"])
    until(lambda: not platform.containers(), 10, "the container is gone")
    until(lambda: not platform.scratch_folders(), 10, "the scratch folder is gone", last=platform.scratch_folders)
    platform.audit()


def test_a_kept_home_is_mounted_by_another_session(platform: Platform) -> None:
    client = platform.client
    session = client.wait_until_running(client.launch("keeper")["id"])
    with client.terminal(session["id"]) as terminal:
        terminal.run(
            "mkdir -p d; echo precious > d/results; head -c 5000000 /dev/zero > d/large; echo $((6*7))", r"\b42\b"
        )
    kept = client.keep_home(session["id"], name=fresh("kept"), ends_session=True)
    assert kept["status"] == "CREATING"
    until(lambda: client.folder(kept["id"])["status"] == "READY", 90, "the home is copied")
    ended = client.wait_for(session["id"], *TERMINAL)
    assert (ended["status"], ended["status_reason"]) == ("TERMINATED", "user-requested")
    other = client.wait_until_running(client.launch("reader", mounts=[{"folder": kept["id"], "target": "kept"}])["id"])
    with client.terminal(other["id"]) as terminal:
        terminal.run("cat /home/work/kept/d/results", "precious")
        terminal.run("wc -c < /home/work/kept/d/large; touch /home/work/kept/new && echo made", "5000000[^0-9]+made")
    client.end(other["id"])
    platform.audit()


@pytest.mark.ci
def test_a_stopped_session_has_its_files_when_it_is_resumed(platform: Platform) -> None:
    client = platform.client
    free = client.group()["free"]
    session = client.wait_until_running(client.launch("sleeper")["id"])
    with client.terminal(session["id"]) as terminal:
        terminal.run(
            "mkdir -p d; echo precious > d/results; ln -s /bin/sh d/shell; chmod 700 d; echo $((6*7))", r"\b42\b"
        )
    assert client.post(f"sessions/{session['id']}/stop/", {})["kind"] == "home.store"
    stopped = client.wait_for(session["id"], "STOPPED")
    assert (stopped["resumes"], client.group()["free"]) == (0, free)
    until(lambda: not platform.scratch_folders(), 10, "the scratch folder is gone", last=platform.scratch_folders)
    assert UUID(session["kernels"][0]["id"]) not in platform.containers()
    client.post(f"sessions/{session['id']}/resume/", {})
    again = client.wait_until_running(session["id"])
    assert again["kernels"][0]["id"] == session["kernels"][0]["id"]
    with client.terminal(session["id"]) as terminal:
        terminal.run(
            "cat d/results; readlink d/shell; echo resumed $BACKENDAI_RESUMED", r"precious\s+/bin/sh\s+resumed 1"
        )
    client.end(session["id"])
    platform.audit()


def test_a_stopped_batch_session_goes_on_from_its_checkpoint_and_succeeds(platform: Platform) -> None:
    client = platform.client
    saves = "trap 'echo from ${BACKENDAI_RESUMED}0 >state; exit 75' TERM; echo started; while :; do sleep 0.1; done"
    command = f"[ -f state ] && exec cat state; {saves}"
    session = client.wait_until_running(client.launch(type="batch", startup_command=command, may_be_stopped=True)["id"])
    address = f"sessions/{session['id']}"
    until(lambda: "started" in client.log(session["id"]), 10, "the program has started")
    client.post(f"{address}/stop/", {})
    client.wait_for(session["id"], "STOPPED")
    client.post(f"{address}/resume/", {})
    ended = client.wait_for(session["id"], "TERMINATED")
    assert (ended["result"], ended["resumes"]) == ("SUCCESS", 1)
    assert client.log(session["id"]) == "from 0\n"
    platform.audit()


def test_it_takes_away_the_network_of_a_cluster_with_its_last_kernel(platform: Platform) -> None:
    client = platform.client
    session = client.wait_until_running(client.launch(cluster_size=2)["id"])
    label = f"backendai.session={session['id']}"
    assert len(platform.engine.networks(filters={"label": label})) == 1
    with client.terminal(session["id"]) as terminal:
        terminal.run("nc -w 5 sub1 9", "Connection refused")  # by the other kernel, so it was reached
    client.end(session["id"])
    until(lambda: not platform.engine.networks(filters={"label": label}), 10, "the network is gone")


@pytest.mark.parametrize(
    ("command", "result", "reason", "code"),
    [("echo done", "SUCCESS", "task-finished", 0), ("echo done; exit 3", "FAILED", "task-failed", 3)],
)
def test_it_keeps_the_result_of_a_batch_session(
    platform: Platform, command: str, result: str, reason: str, code: int
) -> None:
    client = platform.client
    session = client.launch(type="batch", startup_command=command)
    ended = client.wait_for(session["id"], *TERMINAL)
    assert (ended["status"], ended["result"], ended["status_reason"]) == ("TERMINATED", result, reason)
    assert ended["kernels"][0]["exit_code"] == code
    assert client.log(session["id"]) == "done\n"


def test_it_says_that_the_memory_was_too_small(platform: Platform) -> None:
    client = platform.client
    session = client.launch(type="batch", startup_command="tail /dev/zero", resources={"cpu": "0.5", "mem": "32m"})
    ended = client.wait_for(session["id"], *TERMINAL)
    assert (ended["status"], ended["result"], ended["status_reason"]) == ("TERMINATED", "FAILED", "out-of-memory")
    assert "32 MiB" in ended["status_message"]


@pytest.mark.parametrize(("image", "reason"), [("absent", "image-not-found"), ("unreachable", "registry-unreachable")])
def test_it_says_that_an_image_cannot_be_had(platform: Platform, image: str, reason: str) -> None:
    session = platform.client.launch(image=image)
    ended = platform.client.wait_for(session["id"], *TERMINAL)
    assert (ended["status"], ended["status_reason"]) == ("ERROR", reason)
    assert "absent:latest" in ended["status_message"]


def test_it_ends_a_session_whose_main_process_dies_at_once(platform: Platform) -> None:
    session = platform.client.launch(image="stillborn")
    ended = platform.client.wait_for(session["id"], *TERMINAL)
    assert (ended["status"], ended["status_reason"]) == ("TERMINATED", "self-terminated")
    assert ended["kernels"][0]["exit_code"] == 1


def test_it_lets_a_session_wait_with_a_reason_until_there_is_room(platform: Platform) -> None:
    client = platform.client
    first = client.wait_until_running(client.launch(resources={"cpu": 3, "mem": "64m"})["id"])
    second = client.launch(resources={"cpu": 2, "mem": "64m"})
    until(lambda: client.session(second["id"])["status_reason"], 15, "the wait has a reason")
    waiting = client.session(second["id"])
    assert (waiting["status"], waiting["status_reason"]) == ("PENDING", "insufficient-resources")
    assert "CPU cores" in waiting["status_message"]
    client.terminate(first["id"])
    client.wait_until_running(second["id"])
    client.end(first["id"], second["id"])


def test_it_ends_where_it_began(platform: Platform) -> None:
    assert platform.client.group()["occupied"] == {"cpu": "0", "mem": "0"}
    until(lambda: not platform.containers(), 10, "all containers are gone")
    platform.audit()


TRICKY = "a'b\"c `id` $(touch no) ${HOME} $PARAM_TEXT \\n %s\n\n  second\tline; rm -rf * \u00fc\u200b\\"


def test_parameters_reach_the_program_byte_for_byte(platform: Platform) -> None:
    """From a template and from the matrix of a run, by REST, into the variables of a program in a container."""
    client = platform.client
    document = {
        "params": {"text": {"type": "text"}},
        "type": "batch",
        "image": "tiny",
        "resources": {"cpu": "0.5", "mem": "64m"},
        "environ": {"COPY": "<${{ params.text }}>"},
        "startup_command": 'printf %s "$PARAM_TEXT" | sha256sum; printf %s "$COPY" | sha256sum; ls /home/work',
    }
    name = fresh("tricky")
    client.post("templates/", {"name": name, "scope": "private", "text": json.dumps(document)})
    session = client.launch("tricky", template=f"private/{name}", parameters={"text": TRICKY})
    assert client.wait_for(session["id"], *TERMINAL)["result"] == "SUCCESS"
    log = client.log(session["id"])
    assert digest(TRICKY) in log and digest(f"<{TRICKY}>") in log and "no\n" not in log

    step = {"image": "tiny", "matrix": {"text": [TRICKY]}, "startup_command": document["startup_command"]}
    run = client.post("runs/", {"document": {"steps": {"one": step | {"resources": document["resources"]}}}})
    path = f"runs/{run['id']}/"
    until(lambda: client._get(path).json()["ended_at"], 60, "the run has ended")
    (task,) = client._get(f"{path}tasks/").json()["results"]
    assert digest(TRICKY) in client.log(task["session"])


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
