"""Sessions as pods of a real cluster and as emulated virtual machines in the browser: what people do every day."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from docker import APIClient

from backendai.agent.backends.qemu.command import TCG
from backendai.agent.backends.qemu.start import slowness
from backendai.agent.backends.service_host import ServiceHost
from tests.agent.images import TMUX_IMAGE, ensure_tmux_image
from tests.agent.kubernetes_bed import bed, ensure_bed, namespace
from tests.agent.qemu_bed import machine_settings
from tests.browser.chromium import Chromium
from tests.browser.everyday import Amounts, walk_cluster, walk_folder, walk_notebook
from tests.browser.people import ADMIN
from tests.browser.visitor import Visitor, run_on
from tests.system.client import Client
from tests.system.images import ensure_tiny
from tests.system.platform import ROOT, Platform

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system, pytest.mark.timeout(900)]
PYTHON = "local/backendai-python:latest"


@dataclass(frozen=True)
class Rig:
    """A platform with one agent of a backend, and what it can do how fast."""

    platform: Platform
    owner: Client
    amounts: Amounts
    lab: dict[str, str]  # the amounts of a session with JupyterLab
    start_within: int
    lab_within: int
    in_pods: bool  # whose kernels have no host files and no SSH to each other


def pods(data: Any, stack: ExitStack) -> tuple[Platform, dict[str, Any]]:
    """Return a platform whose sessions are pods in a namespace of its own; its folders are on a path of the node."""
    ensure_bed()
    _, said = stack.enter_context(namespace())
    (data / "config").write_text(yaml.safe_dump(said))
    extra = {
        "BACKENDAI_KUBERNETES_CONFIG": str(data / "config"),
        "BACKENDAI_KUBERNETES_REACH": "direct",
        "BACKENDAI_KUBERNETES_STORAGE": f"local=path:{data}/folders",
        "BACKENDAI_AGENT_SLOTS": "cpu=2,mem=4g",
    }
    platform = Platform(data, backend="kubernetes", images={"shell": TMUX_IMAGE}, extra=extra)
    amounts, lab = {"CPU cores": "0.1", "Memory": "64m"}, {"cpu": "1", "mem": "1g"}
    return platform, {"amounts": amounts, "lab": lab, "start_within": 60, "lab_within": 90, "in_pods": True}


def machines(data: Any, stack: ExitStack) -> tuple[Platform, dict[str, Any]]:
    """Return a platform whose sessions are virtual machines."""
    ensure_tiny()
    engine = APIClient()
    shell = ensure_tmux_image(engine)
    engine.close()
    settings = machine_settings(data / "cache")
    extra = {
        "BACKENDAI_QEMU_ROOT": str(settings.root),
        "BACKENDAI_QEMU_CACHE": str(settings.cache),
        "BACKENDAI_QEMU_ACCELERATION": "tcg",
        "BACKENDAI_AGENT_SLOTS": "cpu=4,mem=8g",
        "BACKENDAI_SCRATCH_BYTES": str(2**30),
    }
    platform = Platform(data, backend="qemu", images={"shell": shell}, extra=extra)
    amounts, lab = {"CPU cores": "1", "Memory": "256m"}, {"cpu": "2", "mem": "1536m"}
    lab_within = 2 * int(ServiceHost.start_seconds * slowness(TCG))  # the platform's own deadline, and its page's
    return platform, {"amounts": amounts, "lab": lab, "start_within": 120, "lab_within": lab_within, "in_pods": False}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(pods, marks=pytest.mark.kubernetes, id="pods"),
        pytest.param(machines, marks=pytest.mark.qemu, id="machines"),
    ],
)
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with ExitStack() as stack:
        platform, traits = request.param(tmp_path_factory.mktemp("everyday"), stack)
        stack.enter_context(platform)
        run_on(platform, "make_administrator")
        run_on(platform, "name_shell")
        owner = Client(platform.url, platform.manage("create_token", ADMIN).stdout.split()[-1])
        yield Rig(platform, owner, **traits)


@pytest.mark.ci
def test_a_folder_goes_from_a_terminal_to_the_browser_and_a_batch_job(rig: Rig, chromium: Chromium) -> None:
    visitor = Visitor(chromium, rig.platform.url).sign_in(ADMIN)
    walk_folder(visitor, rig.owner, amounts=rig.amounts, within=rig.start_within)
    visitor.leave()


@pytest.mark.long
def test_three_kernels_of_a_session_reach_each_other(rig: Rig, chromium: Chromium) -> None:
    visitor = Visitor(chromium, rig.platform.url).sign_in(ADMIN)
    walk_cluster(visitor, rig.owner, amounts=rig.amounts, within=rig.start_within, has_files=not rig.in_pods)
    visitor.leave()


@pytest.mark.long
def test_a_cell_of_a_notebook_runs_in_jupyterlab(rig: Rig, chromium: Chromium) -> None:
    subprocess.run([ROOT / "bin" / "build-images", "--only", "python"], check=True)
    if rig.in_pods:
        bed("load", PYTHON)
    visitor = Visitor(chromium, rig.platform.url).sign_in(ADMIN)
    walk_notebook(visitor, rig.owner, resources=rig.lab, within=rig.lab_within)
