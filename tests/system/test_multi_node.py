"""One session on two machines: its kernels find each other by name over a network of their own, and nothing is left."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from docker import APIClient

from tests.agent.cluster_tools import OPEN_MPI
from tests.agent.images import MPI_IMAGE, ensure_mpi_image
from tests.agent.prerequisites import need_program
from tests.patience import until
from tests.system.client import fresh
from tests.system.engine import PrivateEngine
from tests.system.platform import ROOT, Platform
from tests.system.test_apps import Visitor
from tests.system.test_engine_kill import need_root_and_programs, node

pytestmark = [pytest.mark.system, pytest.mark.docker]
GUIDE = ROOT / "docs" / "user-guide.md"
HAS_MPI = shutil.which("mpirun") is not None
# The main kernel listens, the other one sends, each with the same command; large enough for many full packets. The
# sleeps keep the tiny image's nc from hanging up when its own input ends. The sender may be done first.
COMMAND = """
if [ "$BACKENDAI_CLUSTER_ROLE" = main ]; then
  sleep 4 | nc -l -p 5000 | wc -c | sed 's/^/bytes that came: /'
else
  until { head -c 300000 /dev/zero; sleep 2; } | nc main1 5000; do sleep 0.2; done
fi
""".strip()


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Platform, PrivateEngine]]:
    """A portal with an agent of its own, and a second machine with a network and an engine of its own."""
    need_root_and_programs()
    need_program("sshd", "openssh-server")
    with PrivateEngine(Path(tempfile.mkdtemp(prefix="backendai-engine-"))) as engine:
        data = tmp_path_factory.mktemp("multi")
        for url in (None, engine.url):
            client = APIClient(base_url=url)
            if HAS_MPI:
                ensure_mpi_image(client)
            client.close()
        images = {"mpi": MPI_IMAGE} if HAS_MPI else {}
        with Platform(data, host=engine.portal_host, agents=1, images=images) as platform, node(platform, engine):
            platform.wait_for_agents(2)
            yield platform, engine


def connections(engine: PrivateEngine) -> list[str]:
    """Return the devices that join sessions over machines, on both of them."""
    here = subprocess.run(["ls", "/sys/class/net"], capture_output=True, text=True, check=True).stdout
    there = subprocess.run(engine.inside(["ls", "/sys/class/net"]), capture_output=True, text=True, check=True).stdout
    return [device for device in f"{here} {there}".split() if device.startswith("bax-")]


def test_kernels_on_two_machines_talk_and_leave_nothing(machines: tuple[Platform, PrivateEngine]) -> None:
    platform, engine = machines
    client = platform.client
    wish = {"resources": {"cpu": "3", "mem": "64m"}, "cluster_size": 2, "cluster_mode": "multi-node"}
    session = client.launch(type="batch", startup_command=COMMAND, **wish)
    ended = client.wait_for(session["id"], "TERMINATED", "ERROR", "CANCELLED", seconds=90)
    assert ended["result"] == "SUCCESS", ended
    assert len({kernel["agent"] for kernel in ended["kernels"]}) == 2
    assert "bytes that came: 300000" in client.log(session["id"])
    until(lambda: not connections(engine), 30, "the connection between the machines is gone")
    platform.audit()


@pytest.mark.ci
def test_a_parallel_program_needs_nothing_but_its_name_on_two_machines(
    machines: tuple[Platform, PrivateEngine],
) -> None:
    need_program("mpirun", "openmpi-bin")
    platform, engine = machines
    client = platform.client
    wish = {"resources": {"cpu": "2", "mem": "64m"}, "cluster_mode": "multi-node", "cluster_size": 3}
    session = client.launch(image="mpi", type="batch", startup_command=OPEN_MPI, command_in="main", **wish)
    ended = client.wait_for(session["id"], "TERMINATED", "ERROR", "CANCELLED", seconds=90)
    log = client.log(session["id"])
    assert ended["result"] == "SUCCESS", log
    assert len({kernel["agent"] for kernel in ended["kernels"]}) == 2
    told = sorted(line for line in log.splitlines() if line.startswith("rank "))
    hosts = [name for name in ("main1", "sub1", "sub2") for _core in range(2)]
    assert told == [f"rank {rank} of 6 on {name}" for rank, name in enumerate(hosts)], log
    until(lambda: not connections(engine), 30, "the connection between the machines is gone")
    platform.audit()


# What torchrun does before it starts a program: every kernel runs the same command, and they meet at the main one.
# A port for each, for nc takes one connection.
MEETING = """
if [ "$PET_NODE_RANK" = 0 ]; then
  for n in $(seq 1 $((PET_NNODES - 1))); do sleep 20 | nc -l -p $((PET_MASTER_PORT + n)) & done
  wait
else
  word="node $PET_NODE_RANK of $PET_NNODES met at $PET_MASTER_ADDR, also $NODE_RANK of $NNODES at $MASTER_ADDR"
  until echo "$word" | nc "$PET_MASTER_ADDR" $((PET_MASTER_PORT + PET_NODE_RANK)); do sleep 0.2; done
fi
""".strip()


@pytest.mark.ci
def test_programs_that_meet_as_under_torchrun_find_each_other_on_two_machines(
    machines: tuple[Platform, PrivateEngine],
) -> None:
    platform, engine = machines
    client = platform.client
    wish = {"resources": {"cpu": "2", "mem": "64m"}, "cluster_mode": "multi-node", "cluster_size": 3}
    session = client.launch(type="batch", startup_command=MEETING, done_when="all", **wish)
    ended = client.wait_for(session["id"], "TERMINATED", "ERROR", "CANCELLED", seconds=90)
    log = client.log(session["id"])
    assert ended["result"] == "SUCCESS", log
    assert len({kernel["agent"] for kernel in ended["kernels"]}) == 2
    words = {f"node {rank} of 3 met at main1, also {rank} of 3 at main1" for rank in (1, 2)}
    assert set(log.splitlines()) == words
    until(lambda: not connections(engine), 30, "the connection between the machines is gone")
    platform.audit()


@pytest.mark.ci
def test_a_worker_on_another_machine_starts_again_in_its_seat(machines: tuple[Platform, PrivateEngine]) -> None:
    platform, engine = machines
    client = platform.client
    once = "nc -l -p 5000 >/tmp/said; sleep 1; exit 1"  # each run of it takes one word and fails
    main = "for n in 1 2; do until echo $n | nc worker1 5000; do sleep 0.2; done; sleep 3; done"
    workers = {"startup_command": once, "on_failure": "restart"}
    wish = {"resources": {"cpu": "3", "mem": "64m"}, "cluster_mode": "multi-node", "roles": {"worker": workers}}
    session = client.launch(type="batch", startup_command=main, **wish)
    ended = client.wait_for(session["id"], "TERMINATED", "ERROR", "CANCELLED", seconds=120)
    assert ended["result"] == "SUCCESS", client.log(session["id"])
    worker = ended["kernels"][1]
    assert worker["restarts"] >= 1 and worker["agent"] != ended["kernels"][0]["agent"]
    until(lambda: not connections(engine), 30, "the connection between the machines is gone")
    platform.audit()


# In place of Dask: the scheduler's dashboard notes who looked at it, and the program ends when somebody did.
DASHBOARD = """
mkdir -p www/cgi-bin
printf '#!/bin/sh\\ntouch ../go\\necho; echo Dashboard\\n' >www/cgi-bin/status
chmod +x www/cgi-bin/status
httpd -p 8787 -h www
exec nc -ll -p 8786 -e cat
""".strip()
STEPS = {
    "exec dask scheduler": DASHBOARD,
    "exec dask worker": "echo joins | nc main1 8786; exec sleep 300",
    "python program.py": "until wget -q -O - http://main1:8787/go; do sleep 0.2; done",
}


def template_of_the_guide(image: str, resources: dict[str, str]) -> dict[str, Any]:
    """Return the guide's example of a cluster with roles, whose programs are those of the tiny image."""
    (text,) = re.findall(r"^```yaml\n(image: python-with-dask\n.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    document: dict[str, Any] = yaml.safe_load(text) | {"image": image, "resources": resources}
    for part in (document, *document["roles"].values()):
        if said := part.get("startup_command"):
            part["startup_command"] = next(step for begin, step in STEPS.items() if said.startswith(begin))
    return document


@pytest.mark.ci
def test_the_cluster_of_the_guide_starts_in_its_order_and_is_done_with_its_driver(
    machines: tuple[Platform, PrivateEngine],
) -> None:
    platform, _ = machines
    client = platform.client
    small = {"cpu": "0.2", "mem": "32m"}
    document = template_of_the_guide("tiny", small)
    name = fresh("cluster")
    client.post("templates/", {"name": name, "scope": "private", "document": document})
    session = client.launch(template=f"private/{name}", resources=small)
    session = client.wait_for(session["id"], "RUNNING", "TERMINATED", "ERROR", "CANCELLED", seconds=90)
    assert session["status"] == "RUNNING", client.log(session["id"])
    workers = [f"worker{number}" for number in range(1, 5)]
    assert sorted(one["hostname"] for one in session["kernels"]) == ["driver1", "main1", *workers]
    visitor = Visitor(platform, session, "port-8787")
    assert visitor.enter().status_code == 303
    assert "Dashboard" in visitor.ask("GET", "/cgi-bin/status").text
    ended = client.wait_for(session["id"], "TERMINATED", "ERROR", "CANCELLED", seconds=60)
    assert ended["result"] == "SUCCESS", client.log(session["id"])
    platform.audit()
