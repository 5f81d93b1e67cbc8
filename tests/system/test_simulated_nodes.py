"""Simulated nodes in one process, next to a real portal: sessions start, talk, end, and none is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.system.client import TERMINAL
from tests.system.platform import ROOT, Platform
from tests.system.polling import until

NODES, SESSIONS = 20, 60
ENDED_WITHIN = 90.0
STOPPED_WITHIN = 30.0
SMALL = {"cpu": "1", "mem": "64m"}

pytestmark = [pytest.mark.system, pytest.mark.docker, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("sim"), agents=0, images={"simulated": "simulated/python"}) as platform:
        yield platform


@contextmanager
def nodes(platform: Platform, data: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the simulated nodes; they must end in good order."""
    command = [sys.executable, str(ROOT / "manage.py"), "simulate", "--agents", str(NODES), "--data", str(data)]
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    with data.with_suffix(".log").open("ab") as log:
        command += ["--join", platform.url, "--capacity", "cpu=4,mem=8g", *options]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOPPED_WITHIN) == 0
    finally:
        process.kill()
        process.wait()


def test_sessions_on_simulated_nodes_start_talk_and_end_and_none_is_lost(platform: Platform, tmp_path: Path) -> None:
    client, data = platform.client, tmp_path / "nodes"
    token = platform.manage("create_join_token", "--reusable", "--name-prefix", "sim").stdout.strip()
    with nodes(platform, data, "--token", token, "--start-seconds", "0.2"):
        platform.wait_for_agents(NODES)
        asked = client.launch(image="simulated", resources=SMALL)["id"]
        batch = {"image": "simulated", "resources": SMALL, "type": "batch"}
        launched = [
            client.launch(startup_command=f"sleep 2; exit {number % 2}", **batch)["id"] for number in range(SESSIONS)
        ]
        client.wait_until_running(asked)
        with client.terminal(asked) as terminal:
            terminal.run("echo mark-42", "mark-42")
        assert client.end(asked)[0]["status"] == "TERMINATED"
        until(
            lambda: all(session["status"] in TERMINAL for session in client.sessions()), ENDED_WITHIN, "all have ended"
        )
        found = {session["id"]: session for session in client.sessions()}
        assert {found[pk]["status"] for pk in launched} == {"TERMINATED"}
        assert [found[pk]["result"] for pk in launched] == ["SUCCESS", "FAILED"] * (SESSIONS // 2)
        assert "line-1\n" in client.log(launched[0])
    assert {agent["status"] for agent in client.agents()} == {"DRAINING"}, "they have said that nothing new should come"
    platform.audit()


def test_nodes_come_back_without_a_token_and_tell_what_was_lost_with_them(platform: Platform, tmp_path: Path) -> None:
    client, data = platform.client, tmp_path / "nodes"
    token = platform.manage("create_join_token", "--reusable", "--name-prefix", "sim").stdout.strip()
    with nodes(platform, data, "--token", token):
        platform.wait_for_agents(NODES)
        lost = client.launch(image="simulated", resources=SMALL)["id"]
        client.wait_until_running(lost)
    with nodes(platform, data):
        platform.wait_for_agents(NODES)
        ended = client.wait_for(lost, *TERMINAL, seconds=ENDED_WITHIN)
        assert (ended["status"], ended["status_reason"]) == ("ERROR", "container-missing")
    platform.audit()
