"""Eight kernels of one session start over two machines while something fails: whole or nothing, and nothing is left."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from docker import APIClient

from tests.agent.images import ensure_tiny_image
from tests.patience import patient, until
from tests.system.client import Body
from tests.system.engine import PrivateEngine
from tests.system.platform import ROOT, Platform
from tests.system.test_engine_kill import need_root_and_programs
from tests.system.test_multi_node import connections

pytestmark = [pytest.mark.system, pytest.mark.docker, pytest.mark.long, pytest.mark.timeout(590)]
KERNELS = 8  # of one core: both machines are full of them
GRACE_SECONDS = 5.0
ENDS = ("TERMINATED", "ERROR", "CANCELLED")


@dataclass
class Machines:
    """A portal with an agent of its own, and a second machine whose agent this process starts."""

    platform: Platform
    engine: PrivateEngine
    far: subprocess.Popen[bytes]

    def containers(self) -> int:
        """Return how many containers of kernels both engines have."""
        label = {"label": [f"backendai.deployment={self.platform.deployment}", "backendai.kernel"]}
        client = APIClient(base_url=self.engine.url)
        there = client.containers(all=True, filters=label)
        client.close()
        return len(there) + len(self.platform.containers())

    def networks(self) -> list[str]:
        """Return the networks of sessions that both engines have."""
        label = {"label": [f"backendai.deployment={self.platform.deployment}", "backendai.session"]}
        client = APIClient(base_url=self.engine.url)
        there = client.networks(filters=label)
        client.close()
        return [one["Name"] for one in [*there, *self.platform.engine.networks(filters=label)]]

    def strike(self, what: str) -> None:
        """Kill a process with SIGKILL, which starts again at once, or take the second machine off the network for a few
        seconds."""
        if what == "far":
            self.far.kill()
            self.far.wait()
            self.far = started(self.platform, self.engine)
        elif what == "network":
            self.engine.cut_off()
            time.sleep(5)  # how long it lasts is the case, and nothing is waited for
            self.engine.connect()
        else:
            self.platform.wait_for_restart(what, self.platform.kill(what))


def started(platform: Platform, engine: PrivateEngine, *joining: str) -> subprocess.Popen[bytes]:
    """Start the agent of the second machine; it joins once."""
    command = [sys.executable, str(ROOT / "manage.py"), "agent", *joining]
    environment = platform.environment | {"BACKENDAI_AGENT_DATA": str(platform.data / "agents" / "far")}
    with (platform.data / "up.log").open("ab") as log:
        return subprocess.Popen(engine.inside(command), env=environment, stdout=log, stderr=log)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    need_root_and_programs()
    with PrivateEngine(Path(tempfile.mkdtemp(prefix="backendai-engine-"))) as engine:
        for url in (None, engine.url):
            client = APIClient(base_url=url)
            ensure_tiny_image(client)
            client.close()
        with Platform(tmp_path_factory.mktemp("eight"), host=engine.portal_host, agents=1) as platform:
            token = platform.manage("create_join_token").stdout.strip()
            far = started(platform, engine, "--join", platform.url, "--token", token, "--name", "far")
            found = Machines(platform, engine, far)
            try:
                platform.wait_for_agents(2)
                yield found
            finally:
                found.far.terminate()
                found.far.wait(patient(60))


def launched(machines: Machines) -> Body:
    wish = {"resources": {"cpu": "1", "mem": "64m"}, "cluster_size": KERNELS, "cluster_mode": "multi-node"}
    return machines.platform.client.launch(type="batch", startup_command="sleep 900", **wish)


def until_there(machines: Machines, containers: int) -> None:
    until(
        lambda: machines.containers() >= containers, 60, f"{containers} containers are there", last=machines.containers
    )


def whole_or_nothing(machines: Machines, session: Body, free: Body) -> None:
    """End the session, which runs whole or has ended, and wait until nothing of it is left."""
    platform, client = machines.platform, machines.platform.client
    found = client.wait_for(session["id"], "RUNNING", *ENDS, seconds=150)
    if found["status"] == "RUNNING":
        until(lambda: machines.containers() == KERNELS, 30, "all containers are there", last=machines.containers)
        assert len({kernel["agent"] for kernel in found["kernels"]}) == 2
        client.end(session["id"])
    client.wait_for(session["id"], *ENDS, seconds=90)
    until(lambda: not machines.containers(), 30, "no container is left", last=machines.containers)
    until(lambda: not machines.networks(), 30, "no network is left", last=machines.networks)
    until(lambda: not connections(machines.engine), 30, "no connection between the machines is left")
    until(lambda: client.group()["free"] == free, 30, "all slots are free", last=client.group)
    platform.audit()


@pytest.mark.parametrize("what", ["agent", "far", "control", "network"])
@pytest.mark.parametrize("containers", [0, 1, 4, 7, 8])
def test_a_session_starts_whole_or_not_at_all(machines: Machines, what: str, containers: int) -> None:
    free = machines.platform.client.group()["free"]
    session = launched(machines)
    until_there(machines, containers)
    machines.strike(what)
    whole_or_nothing(machines, session, free)


@pytest.mark.parametrize("containers", [1, 4])
def test_a_start_is_given_up_when_a_machine_stays_away(machines: Machines, containers: int) -> None:
    platform, client = machines.platform, machines.platform.client
    platform.wait_for_agents(2)
    free = client.group()["free"]
    client._send("PATCH", "resource-groups/default/settings/", json={"agent_lost_grace": GRACE_SECONDS})
    session = launched(machines)
    until_there(machines, containers)

    def is_decided() -> bool:
        return client.session(session["id"])["status"] == "RUNNING" or not platform.containers()

    machines.engine.cut_off()
    try:
        until(is_decided, 180, "it runs, or the machine that is left has no container", last=platform.containers)
    finally:
        machines.engine.connect()
    platform.wait_for_agents(2)
    whole_or_nothing(machines, session, free)
