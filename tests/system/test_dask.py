"""A Dask cluster from a template, over two machines: its dashboard is an app, and it survives the loss of a machine."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker import APIClient

from tests.agent.images import ensure_packages_image
from tests.patience import patient, until
from tests.system.client import fresh
from tests.system.engine import PrivateEngine
from tests.system.platform import Platform
from tests.system.test_apps import Visitor
from tests.system.test_engine_kill import need_root_and_programs, node

pytestmark = [pytest.mark.system, pytest.mark.docker, pytest.mark.long]
IMAGE = "local/backendai-test-dask:1"
PACKAGES = ("dask", "distributed", "bokeh")
DRIVER = """
import time
from dask.distributed import Client

def square(number):
    time.sleep(0.1)
    return number * number

client = Client("tcp://main1:8786", timeout=60)
client.wait_for_workers(2, timeout=60)
workers, deadline = 2, time.monotonic() + 180
while workers == 2 and time.monotonic() < deadline:
    assert client.submit(sum, client.map(square, range(20), pure=False)).result(timeout=120) == 2470
    workers = len(client.scheduler_info(n_workers=-1)["workers"])
    print("right with", workers, flush=True)
assert workers == 1, "no worker was lost"
assert client.submit(sum, client.map(square, range(20), pure=False)).result(timeout=120) == 2470
print("right after the loss", flush=True)
"""
TEMPLATE: dict[str, Any] = {
    "type": "batch",
    "image": "dask",
    "cluster_mode": "multi-node",
    "resources": {"cpu": 1, "mem": "600m"},
    "preopen_ports": [8787],
    "done_when": "driver",
    # Without these Dask waits for a machine that is gone for five minutes.
    "environ": {
        "PYTHONPATH": "/opt/packages",
        "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "15s",
        "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "15s",
    },
    "startup_command": "exec python3 -m distributed.cli.dask_scheduler --port 8786 --dashboard-address 0.0.0.0:8787",
    "roles": {
        "main": {"ready": {"tcp": 8786, "within": 90}},
        "worker": {
            "count": 2,
            "after": ["main"],
            "on_failure": "tolerate",
            "resources": {"cpu": 1, "mem": "400m"},
            "startup_command": "exec python3 -m distributed.cli.dask_worker tcp://main1:8786"
            " --no-nanny --nthreads 1 --memory-limit 0 --local-directory /tmp",
        },
        "driver": {"after": ["main", "worker"], "startup_command": f"exec python3 - <<'END'\n{DRIVER}\nEND"},
    },
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), *PACKAGES]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs a package index with dask, distributed and bokeh")
    return folder


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory, packages: Path) -> Iterator[tuple[Platform, PrivateEngine]]:
    """A portal with an agent of its own, and a second machine with a network and an engine of its own."""
    need_root_and_programs()
    with PrivateEngine(Path(tempfile.mkdtemp(prefix="backendai-engine-"))) as engine:
        for url in (None, engine.url):
            client = APIClient(base_url=url, timeout=patient(300))
            ensure_packages_image(client, IMAGE, packages)
            client.close()
        data = tmp_path_factory.mktemp("dask")
        images = {"dask": IMAGE}
        with Platform(data, host=engine.portal_host, agents=1, images=images) as platform, node(platform, engine):
            platform.wait_for_agents(2)
            yield platform, engine


def test_a_dask_cluster_survives_the_loss_of_the_machine_of_a_worker(
    machines: tuple[Platform, PrivateEngine],
) -> None:
    platform, engine = machines
    client = platform.client
    # What is left on the other machine takes a worker and nothing larger.
    filler = client.launch(agents=["far"], resources={"cpu": 1, "mem": "1600m"})
    client.wait_until_running(filler["id"])
    name = fresh("dask")
    client.post("templates/", {"name": name, "scope": "private", "document": TEMPLATE})
    session = client.launch(template=f"private/{name}", image="dask", resources=TEMPLATE["resources"])
    session = client.wait_for(session["id"], "RUNNING", "TERMINATED", "ERROR", "CANCELLED", seconds=120)
    assert session["status"] == "RUNNING", client.log(session["id"])
    kernels = {kernel["hostname"]: kernel for kernel in session["kernels"]}
    far = [name for name, kernel in kernels.items() if kernel["agent"] == "far"]
    assert far in (["worker1"], ["worker2"]), far

    visitor = Visitor(platform, session, "port-8787")
    assert visitor.enter().status_code in (302, 303)
    assert "Dask" in visitor.ask("GET", "/status").text

    def said() -> str:
        return str(client._get(f"sessions/{session['id']}/logs/?kernel={kernels['driver1']['id']}").text)

    until(lambda: "right with 2" in said(), 90, "the program has results of both workers", last=said)
    engine.cut_off()
    until(lambda: client.session(session["id"])["result"] == "SUCCESS", 150, "it is done", last=said)
    assert "right after the loss" in said()
    engine.connect()
    ended = client.wait_for(session["id"], "TERMINATED", "ERROR", "CANCELLED", seconds=90)
    assert (ended["status"], ended["result"]) == ("TERMINATED", "SUCCESS")
    client.end(filler["id"])  # the audit looks at the engine of the portal's machine alone
    client.wait_for(filler["id"], "TERMINATED", seconds=60)
    platform.audit()
