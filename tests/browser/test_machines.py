"""Sessions as emulated virtual machines in the browser: what people do every day."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from docker import APIClient

from backendai.agent.backends.qemu.command import TCG
from backendai.agent.backends.qemu.start import slowness
from backendai.agent.backends.service_host import ServiceHost
from tests.agent.images import ensure_tmux_image
from tests.agent.qemu_bed import machine_settings
from tests.browser.chromium import Chromium
from tests.browser.everyday import walk_cluster, walk_folder, walk_notebook
from tests.browser.people import ADMIN
from tests.browser.visitor import Visitor, run_on
from tests.system.client import Client
from tests.system.images import ensure_tiny
from tests.system.platform import ROOT, Platform

pytestmark = [
    pytest.mark.browser,
    pytest.mark.docker,
    pytest.mark.system,
    pytest.mark.qemu,
    pytest.mark.timeout(900),
]
STARTED_WITHIN = 120
LAB_WITHIN = 2 * int(ServiceHost.start_seconds * slowness(TCG))  # the platform's own deadline, and its page after that
AMOUNTS = {"CPU cores": "1", "Memory": "256m"}


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """The platform with one agent whose sessions are virtual machines."""
    ensure_tiny()
    engine = APIClient()
    shell = ensure_tmux_image(engine)
    engine.close()
    data = tmp_path_factory.mktemp("machines")
    settings = machine_settings(data / "cache")
    extra = {
        "BACKENDAI_QEMU_ROOT": str(settings.root),
        "BACKENDAI_QEMU_CACHE": str(settings.cache),
        "BACKENDAI_QEMU_ACCELERATION": "tcg",
        "BACKENDAI_AGENT_SLOTS": "cpu=4,mem=8g",
        "BACKENDAI_SCRATCH_BYTES": str(2**30),
    }
    with Platform(data, backend="qemu", images={"shell": shell}, extra=extra) as platform:
        run_on(platform, "make_administrator")
        run_on(platform, "name_shell")
        yield platform


@pytest.fixture(scope="module")
def python(machines: Platform) -> None:
    """The image that people start from is there."""
    subprocess.run([ROOT / "bin" / "build-images", "--only", "python"], check=True)


@pytest.fixture(scope="module")
def owner(machines: Platform) -> Client:
    return Client(machines.url, machines.manage("create_token", ADMIN).stdout.split()[-1])


@pytest.mark.ci
def test_a_folder_goes_from_a_terminal_to_the_browser_and_a_batch_job(
    machines: Platform, chromium: Chromium, owner: Client
) -> None:
    visitor = Visitor(chromium, machines.url).sign_in(ADMIN)
    walk_folder(visitor, owner, amounts=AMOUNTS, within=STARTED_WITHIN)
    visitor.leave()


@pytest.mark.long
def test_three_machines_of_a_session_reach_each_other(machines: Platform, chromium: Chromium, owner: Client) -> None:
    visitor = Visitor(chromium, machines.url).sign_in(ADMIN)
    walk_cluster(visitor, owner, amounts=AMOUNTS, within=STARTED_WITHIN)
    visitor.leave()


@pytest.mark.long
@pytest.mark.usefixtures("python")
def test_a_cell_of_a_notebook_runs_in_jupyterlab(machines: Platform, chromium: Chromium, owner: Client) -> None:
    visitor = Visitor(chromium, machines.url).sign_in(ADMIN)
    walk_notebook(visitor, owner, resources={"cpu": "2", "mem": "1536m"}, within=LAB_WITHIN)
