"""``kill -9`` of the container engine under running sessions, on a node of its own that joined with a token."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from tests.patience import patient, until
from tests.system.client import Terminal
from tests.system.engine import PrivateEngine
from tests.system.platform import ROOT, Platform

pytestmark = [pytest.mark.system, pytest.mark.docker]
SESSIONS = 3
PROGRAMS = ("dockerd", "containerd", "unshare", "nsenter", "ip")


@pytest.fixture(scope="module")
def engine() -> Iterator[PrivateEngine]:
    need_root_and_programs()
    with PrivateEngine(Path(tempfile.mkdtemp(prefix="backendai-engine-"))) as engine:
        yield engine


@pytest.fixture(scope="module")
def platform(engine: PrivateEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A portal without an agent of its own, and a node beside it."""
    data = tmp_path_factory.mktemp("engine")
    with Platform(data, host=engine.portal_host, agents=0, engine=engine) as platform, node(platform, engine):
        platform.wait_for_agents(1)
        yield platform


def need_root_and_programs() -> None:
    """Fail with the mend: a test that is passed over in silence proves nothing."""
    if os.geteuid() != 0:
        pytest.fail("A private engine with a network of its own needs root: sudo bin/test -k engine_kill")
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        pytest.fail(f"Programs are missing: {', '.join(missing)}. apt-get install docker.io iproute2 util-linux")


@contextmanager
def node(platform: Platform, engine: PrivateEngine, name: str = "far") -> Iterator[None]:
    """Run an agent on the engine's machine."""
    token = platform.manage("create_join_token").stdout.strip()
    agent_command = [sys.executable, str(ROOT / "manage.py"), "agent"]
    command = [*agent_command, "--join", platform.url, "--token", token, "--name", name]
    environment = platform.environment | {"BACKENDAI_AGENT_DATA": str(platform.data / "agents" / name)}
    with (platform.data / "up.log").open("ab") as log:
        agent = subprocess.Popen(engine.inside(command), env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        agent.terminate()
        agent.wait(patient(60))


def opens(platform: Platform, session_id: str) -> bool:
    """Return whether the session's terminal answers."""
    try:
        with platform.client.terminal(session_id) as terminal:
            terminal.run("echo $((6*7))", r"\b42\b", 5)
    except (AssertionError, OSError, *Terminal.BROKEN):
        return False
    return True


def test_it_keeps_sessions_when_the_engine_is_killed_and_comes_back(platform: Platform, engine: PrivateEngine) -> None:
    client = platform.client
    launched = [client.launch()["id"] for _ in range(SESSIONS)]
    sessions = [client.wait_until_running(session_id) for session_id in launched]
    before = platform.lives()
    assert before.keys() == {UUID(session["kernels"][0]["id"]) for session in sessions}
    assert opens(platform, launched[0])

    engine.kill()
    until(lambda: client.agents()[0]["status"] == "DRAINING", 30, "the portal hears that the engine is away")
    waiting = client.launch()["id"]
    engine.start()

    client.wait_until_running(waiting, 60)
    assert {key: life for key, life in platform.lives().items() if key in before} == before
    assert [client.session(session_id)["status"] for session_id in launched] == ["RUNNING"] * SESSIONS
    until(lambda: opens(platform, launched[0]), 30, "the terminal opens again")
    platform.audit()
    ended = client.end(*launched, waiting)
    assert {session["status_reason"] for session in ended} == {"user-requested"}
    until(lambda: not platform.containers(), 15, "the containers are gone")
    platform.audit()
