"""The agent as a process: joining, working with and without a broker, and leaving in good order."""

from __future__ import annotations

import base64
import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from redis import Redis

from backendai.base.wire.broker.accounts import account_name, make_account
from backendai.base.wire.broker.queues import broker_address
from backendai.base.wire.messages import KernelSpec
from tests.agent.http_portal import JOIN_TOKEN, HttpPortal
from tests.agent.portal import make_spec
from tests.brokers import OwnBroker, own_broker
from tests.effort import some
from tests.patience import patient, until

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
        agent.process.wait(patient(10))


@pytest.fixture
def portal() -> Iterator[HttpPortal]:
    portal = HttpPortal()
    yield portal
    portal.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OwnBroker]:
    folder = tmp_path / "broker"
    folder.mkdir()
    with own_broker(folder) as broker:
        yield broker


def test_it_joins_and_works_by_sync_alone_when_there_is_no_broker(
    tmp_path: Path, portal: HttpPortal, agents: list[AgentProcess]
) -> None:
    data = tmp_path / "agent"
    first = AgentProcess(data, "--join", portal.url, "--token", JOIN_TOKEN)
    agents.append(first)
    spec = portal.want(make_spec())
    until(lambda: portal.status[spec.kernel_id] == "RUNNING", 30)
    credentials = data / "credentials.json"
    assert credentials.stat().st_mode & 0o777 == 0o600
    assert json.loads(credentials.read_text())["portal_url"] == portal.url
    assert portal.joins[0].gateway_url == portal.syncs[0].gateway_url

    assert first.end() == 0, first.output
    assert portal.syncs[-1].draining
    assert portal.status[spec.kernel_id] == "RUNNING"  # it goes on without the agent

    agents.append(AgentProcess(data))
    seen = len(portal.syncs)
    until(lambda: len(portal.syncs) > seen + 1, 30)
    assert [one.kernel_id for one in portal.syncs[-1].kernels] == [spec.kernel_id]
    assert len(portal.joins) == 1
    assert portal.syncs[-1].gateway_url == portal.joins[0].gateway_url  # the port was kept


def test_it_takes_hints_under_an_account_that_can_do_nothing_else_and_survives_whatever_comes(
    tmp_path: Path, portal: HttpPortal, broker: OwnBroker, agents: list[AgentProcess], settings: Any
) -> None:
    settings.REDIS_URL = portal.broker_url = broker.url
    portal.broker_user, portal.on_broker = account_name("n1"), lambda digest: void(make_account("n1", digest))
    # The address of the environment is used with the account of the portal.
    told = {"BACKENDAI_SYNC_INTERVAL": "20", "REDIS_URL": broker.url}
    agent = AgentProcess(tmp_path / "agent", "--join", portal.url, "--token", JOIN_TOKEN, **told)
    agents.append(agent)
    until(lambda: len(portal.syncs) >= 2, 30)  # the second comes when the broker is connected
    kept = tmp_path / "agent" / "broker.json"
    assert kept.stat().st_mode & 0o777 == 0o600

    hints = Celery("hints", set_as_current=False, fixups=[])
    hints.conf.update(broker_url=broker_address(broker.url))
    starts_by_hint(portal, hints)
    portal.fetches.clear()
    server = Redis.from_url(broker.url)
    for junk in garbage(500):
        server.lpush("node.n1", junk)
    for _ in range(5):
        hints.send_task("node.start_kernel", args=[str(uuid4()), 1], queue="node.n1", ignore_result=True)
    until(lambda: len(portal.fetches) >= 5)
    spec = starts_by_hint(portal, hints)
    assert portal.fetches[-1] == spec.kernel_id
    assert len(portal.fetches) == 6  # forged starts were asked after and came to nothing
    assert len(portal.status) == 2
    portal.terminate(spec.kernel_id)
    hints.send_task("node.stop_kernel", args=[str(spec.kernel_id), 1], queue="node.n1", ignore_result=True)
    until(lambda: portal.status[spec.kernel_id] == "TERMINATED")

    broker.kill()
    late = portal.want(make_spec())
    until(lambda: portal.status[late.kernel_id] == "RUNNING")
    broker.start()  # without its accounts: they were in memory only
    until(lambda: any(client["user"] == portal.broker_user for client in server.client_list()), 30)
    starts_by_hint(portal, hints)
    assert agent.end() == 0, agent.output
    assert "Unrecoverable" not in agent.output
    assert json.loads(kept.read_text())["password"] not in agent.output


def void(done: object) -> None:
    """Forget what was returned."""


def starts_by_hint(portal: HttpPortal, hints: Celery) -> KernelSpec:
    """Return a kernel that a hint has started."""
    spec = portal.want(make_spec())
    hints.send_task("node.start_kernel", args=[str(spec.kernel_id), 1], queue="node.n1", ignore_result=True)
    until(lambda: portal.status[spec.kernel_id] == "RUNNING")
    return spec


def garbage(count: int) -> Iterator[bytes]:
    """Yield messages that nobody should have sent: broken, of no task, with pickled or wrong arguments."""
    mail = {"delivery_tag": "t", "delivery_info": {"exchange": "", "routing_key": "node.n1"}}

    def task(name: str, body: bytes, kind: str = "application/json", **headers: Any) -> bytes:
        headers = {"task": name, "id": "i", "lang": "py"} | headers
        return json.dumps(
            {
                "body": base64.b64encode(body).decode(),
                "content-type": kind,
                "content-encoding": "utf-8",
                "headers": headers,
                "properties": mail | {"body_encoding": "base64"},
            }
        ).encode()

    pickled = pickle.dumps(([], {}, {}))
    yield from itertools.islice(
        itertools.cycle(
            [
                b"",
                b"\x80\x04garbage",
                pickled,
                b"[]",
                b"{}",
                b"null",
                b"[" * 5000,
                b'{"body": 1}',
                b'{"properties": {}}',
                json.dumps({"body": "x", "properties": mail}).encode(),
                task("node.start_kernel", pickled, "application/x-python-serialize"),
                task("node.start_kernel", b"\x00not json"),
                task("node.start_kernel", b'[["no id", 1], {}, {}]'),
                task("node.start_kernel", b'[[], {}, {"chain": [{"task": "node.sync"}]}]'),
                task("node.start_kernel", b"{}", eta="not a time", expires=-1),
                task("node.start_kernels", b'[[[["x"]]], {}, {}]'),
                task("os.system", b'[["true"], {}, {}]'),
                task("celery.backend_cleanup", b"[[], {}, {}]", reply_to="control"),
                task("", b""),
            ]
        ),
        count,
    )


@pytest.mark.ci
def test_it_works_and_ends_in_good_order_with_a_broker_that_never_was_there(
    tmp_path: Path, portal: HttpPortal, agents: list[AgentProcess]
) -> None:
    portal.broker_url = f"unix://{tmp_path}/nobody.sock"
    agent = AgentProcess(tmp_path / "agent", "--join", portal.url, "--token", JOIN_TOKEN)
    agents.append(agent)
    spec = portal.want(make_spec())
    until(lambda: portal.status[spec.kernel_id] == "RUNNING", 30)
    assert agent.end(signal.SIGINT) == 0, agent.output
    assert portal.syncs[-1].draining


def test_it_adopts_its_kernels_after_being_killed(
    tmp_path: Path, portal: HttpPortal, agents: list[AgentProcess]
) -> None:
    data = tmp_path / "agent"
    agents.append(AgentProcess(data, "--join", portal.url, "--token", JOIN_TOKEN))
    specs = [portal.want(make_spec()) for _ in range(20)]
    until(lambda: any(portal.status[spec.kernel_id] == "RUNNING" for spec in specs), 30)
    agents[0].process.kill()
    agents[0].process.wait(patient(10))
    agents.append(AgentProcess(data))
    until(lambda: all(portal.status[spec.kernel_id] == "RUNNING" for spec in specs), 30)
    seen = len(portal.syncs)
    until(lambda: len(portal.syncs) > seen + 1)
    assert len(portal.syncs[-1].kernels) == 20


def test_it_joins_again_with_its_token_when_the_portal_forgot_it(
    tmp_path: Path, portal: HttpPortal, agents: list[AgentProcess]
) -> None:
    data = tmp_path / "agent"
    data.mkdir()
    forgotten = {"portal_url": portal.url, "name": "n1", "token": "old", "broker_url": "", "deployment": "old"}
    (data / "credentials.json").write_text(json.dumps(forgotten | {"public_key": ""}))
    agents.append(AgentProcess(data, BACKENDAI_JOIN_TOKEN=JOIN_TOKEN))
    until(lambda: bool(portal.syncs), 30)
    assert len(portal.joins) == 1


@some(
    ("options", "says"),
    [
        (["--token", "wrong"], "refuses to let this agent join"),
        ([], "has not joined a portal"),
        (["--name", "No Good"], "is not an agent name"),
    ],
    1,
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
    until(lambda: bool(portal.syncs), 30)
    second = AgentProcess(data)
    agents.append(second)
    assert second.process.wait(30) == 1
    assert "Another agent already runs" in second.output
