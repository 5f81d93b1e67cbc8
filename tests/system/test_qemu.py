"""The whole platform with sessions as emulated virtual machines, as people use it, and ``kill -9`` of the agent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

from tests.agent.qemu_bed import machine_settings
from tests.patience import until
from tests.system.platform import Platform
from tests.system.tiny_replica import COMMAND, tiny_replica

pytestmark = [
    pytest.mark.system,
    pytest.mark.qemu,
    pytest.mark.timeout(400),
    pytest.mark.usefixtures("tiny_image"),
]
SMALL = {"cpu": "0.5", "mem": "224m"}
STARTED_WITHIN = 120


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, tiny_image: None) -> Iterator[Platform]:
    data = tmp_path_factory.mktemp("machines")
    settings = machine_settings(data / "cache")
    extra = {
        "BACKENDAI_QEMU_ROOT": str(settings.root),
        "BACKENDAI_QEMU_CACHE": str(settings.cache),
        "BACKENDAI_QEMU_ACCELERATION": "tcg",
    }
    with Platform(data, backend="qemu", extra=extra) as platform:
        yield platform


def machines(platform: Platform) -> list[psutil.Process]:
    """Return the processes of QEMU whose supervisors work on the platform's data."""
    children: list[psutil.Process] = []
    for process in platform.processes():
        with suppress(psutil.NoSuchProcess):  # since it was listed
            children += process.children()
    return [child for child in children if _is_machine(child)]


def _is_machine(process: psutil.Process) -> bool:
    try:
        return "qemu-system" in process.name()
    except psutil.NoSuchProcess:
        return False


@pytest.mark.long
def test_a_session_outlives_its_agent_with_terminal_and_log_and_leaves_nothing(platform: Platform) -> None:
    client = platform.client
    session = client.wait_until_running(client.launch(resources=SMALL)["id"], STARTED_WITHIN)
    with client.terminal(session["id"]) as terminal:
        terminal.run("echo $((6*7)) >kept; cat kept", r"\b42\b")
    (before,) = machines(platform)
    platform.wait_for_restart("agent", platform.kill("agent"))
    platform.wait_for_agents(1)
    assert machines(platform) == [before]
    assert client.session(session["id"])["status"] == "RUNNING"
    with client.terminal(session["id"]) as terminal:
        terminal.run("echo again $(cat kept)", r"again 42\b")
    assert session["name"] in client.log(session["id"])
    (ended,) = client.end(session["id"])
    assert (ended["status"], ended["status_reason"]) == ("TERMINATED", "user-requested")
    assert session["name"] in client.log(session["id"])
    until(lambda: machines(platform) == [], 30, "no machine is left")
    until(lambda: list(platform.data.glob("agents/*/kernels/*")) == [], 30, "no folder is left")
    platform.audit()


@pytest.mark.long
def test_three_machines_of_a_session_reach_each_other_by_name(platform: Platform) -> None:
    client = platform.client
    session = client.launch(cluster_size=3, resources=SMALL)
    client.wait_until_running(session["id"], 2 * STARTED_WITHIN)
    with client.terminal(session["id"]) as terminal:
        ask = "until nc $one 9 2>&1 </dev/null | grep -q refused; do sleep 1; done; echo $one-$((40+2))"
        terminal.run(f"for one in sub1 sub2; do {ask}; done", r"sub1-42\s[^$]*sub2-42", seconds=60)
    client.end(session["id"])
    until(lambda: machines(platform) == [], 60, "no machine is left")
    until(lambda: list(platform.data.glob("agents/*/sessions/*")) == [], 60, "no folder of the session is left")
    platform.audit()


@pytest.mark.ci
def test_a_replica_in_a_machine_answers_requests(platform: Platform) -> None:
    command = COMMAND.format(words="from-a-machine")
    with tiny_replica(platform.client, "machine", command, resources=SMALL) as answer:
        until(lambda: "from-a-machine" in answer(), STARTED_WITHIN, "the replica answers", last=answer)
    until(lambda: machines(platform) == [], 60, "no machine is left")
