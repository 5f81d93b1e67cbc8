"""One session on three machines with engines of their own: one is cut off for a while, and traffic returns."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from docker import APIClient

from tests.patience import until
from tests.system.engine import PrivateEngine, Switch
from tests.system.platform import Platform
from tests.system.test_engine_kill import need_root_and_programs, node
from tests.system.test_multi_node import connections

pytestmark = [pytest.mark.system, pytest.mark.docker, pytest.mark.long, pytest.mark.timeout(590)]
# Each sub kernel greets whoever connects; the main one connects to each of them again and again. The sleeps keep the
# tiny image's nc from hanging up when its own input ends.
COMMAND = """
case "$BACKENDAI_CLUSTER_HOST" in
sub*) while :; do { echo here; sleep 1; } | nc -l -p 5000 >/dev/null; done ;;
esac
round=0
while sleep 1; do
  round=$((round + 1))
  for host in sub1 sub2; do echo "$round $host $(sleep 2 | nc -w 3 "$host" 5000 2>/dev/null || echo nothing)"; done
done
""".strip()
Machines = tuple[Platform, dict[str, PrivateEngine]]


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """A portal with an agent of its own, and two machines whose agents have the names of their engines."""
    need_root_and_programs()
    with ExitStack() as leaving:
        switch = leaving.enter_context(Switch())
        engines = {}
        for number in (2, 3):
            home = Path(tempfile.mkdtemp(prefix="backendai-engine-"))
            engines[f"far{number}"] = leaving.enter_context(PrivateEngine(home, switch=switch, number=number))
        platform = leaving.enter_context(
            Platform(tmp_path_factory.mktemp("engines"), host=switch.portal_host, agents=1)
        )
        for name, engine in engines.items():
            leaving.enter_context(node(platform, engine, name))
        platform.wait_for_agents(3)
        yield platform, engines


def gateways(machines: Machines) -> list[str]:
    """Return the gateways of the networks of sessions, by machine."""
    platform, engines = machines
    found = []
    for url in (None, *(engine.url for engine in engines.values())):
        client = APIClient(base_url=url)
        label = {"label": [f"backendai.deployment={platform.deployment}", "backendai.session"]}
        found += [network["IPAM"]["Config"][0]["Gateway"] for network in client.networks(filters=label)]
        client.close()
    return found


def test_traffic_returns_when_a_machine_that_was_cut_off_is_back(machines: Machines) -> None:
    platform, engines = machines
    client = platform.client
    wish = {"resources": {"cpu": "3", "mem": "64m"}, "cluster_size": 3, "cluster_mode": "multi-node"}
    session = client.launch(type="batch", startup_command=COMMAND, **wish)
    kernels = {one["hostname"]: one for one in client.wait_for(session["id"], "RUNNING", seconds=90)["kernels"]}
    agents = {host: kernel["agent"] for host, kernel in kernels.items()}
    assert len(set(agents.values())) == 3
    before = gateways(machines)
    assert len(set(before)) == 3
    lost = next(host for host in ("sub1", "sub2") if agents[host] in engines)
    kept = ({"sub1", "sub2"} - {lost}).pop()

    def log() -> str:
        return client.log(session["id"])

    def heard(host: str, words: str) -> None:
        """Wait until a round that begins from now on has these words of the kernel."""
        rounds = [int(line.split()[0]) for line in log().splitlines() if line[:1].isdigit()]
        after = max(rounds, default=0)
        told = f" {host} {words}"
        until(
            lambda: any(line.endswith(told) and int(line.split()[0]) > after for line in log().splitlines()),
            60,
            f"{host} says {words}",
            last=log,
        )

    heard(lost, "here")
    heard(kept, "here")
    engines[agents[lost]].cut_off()
    heard(lost, "nothing")
    heard(kept, "here")
    until(lambda: _status(platform, agents[lost]) == "LOST", 120, "the agent counts as lost")
    engines[agents[lost]].connect()
    heard(lost, "here")
    heard(kept, "here")
    until(lambda: _status(platform, agents[lost]) == "ALIVE", 60, "the agent is back")
    now = client.session(session["id"])
    assert now["status"] == "RUNNING"
    assert {one["hostname"]: (one["id"], one["agent"]) for one in now["kernels"]} == {
        host: (kernel["id"], kernel["agent"]) for host, kernel in kernels.items()
    }
    assert gateways(machines) == before

    client.end(session["id"])
    client.wait_for(session["id"], "TERMINATED", seconds=60)
    until(lambda: not gateways(machines), 30, "no network is left", last=lambda: gateways(machines))
    for engine in engines.values():
        until(lambda engine=engine: not connections(engine), 30, "no connection between the machines is left")
    platform.audit()


def _status(platform: Platform, name: str) -> str:
    return next(agent["status"] for agent in platform.client.agents() if agent["name"] == name)
