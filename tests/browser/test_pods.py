"""Sessions as pods of a real cluster in the browser: what people do every day."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.agent.images import TMUX_IMAGE
from tests.agent.kubernetes_bed import bed, ensure_bed, namespace
from tests.browser.chromium import Chromium
from tests.browser.everyday import walk_cluster, walk_folder, walk_notebook
from tests.browser.people import ADMIN
from tests.browser.visitor import Visitor, run_on
from tests.system.client import Client
from tests.system.platform import ROOT, Platform

pytestmark = [
    pytest.mark.browser,
    pytest.mark.docker,
    pytest.mark.system,
    pytest.mark.kubernetes,
    pytest.mark.timeout(600),
]
PYTHON = "local/backendai-python:latest"
STARTED_WITHIN, LAB_WITHIN = 60, 90
AMOUNTS = {"CPU cores": "0.1", "Memory": "64m"}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The rights of one agent in a namespace of its own."""
    ensure_bed()
    with namespace() as (_, said):
        path = tmp_path_factory.mktemp("kubernetes") / "config"
        path.write_text(yaml.safe_dump(said))
        yield path


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory, config: Path) -> Iterator[Platform]:
    """The platform with one agent whose sessions are pods; its folders are on a path that the node has."""
    data = tmp_path_factory.mktemp("pool")
    extra = {
        "BACKENDAI_KUBERNETES_CONFIG": str(config),
        "BACKENDAI_KUBERNETES_REACH": "direct",
        "BACKENDAI_KUBERNETES_STORAGE": f"local=path:{data}/folders",
        "BACKENDAI_AGENT_SLOTS": "cpu=2,mem=4g",
    }
    with Platform(data, backend="kubernetes", images={"shell": TMUX_IMAGE}, extra=extra) as platform:
        run_on(platform, "make_administrator")
        run_on(platform, "name_shell")
        yield platform


@pytest.fixture(scope="module")
def python(config: Path) -> None:
    """The image that people start from is in the cluster."""
    subprocess.run([ROOT / "bin" / "build-images", "--only", "python"], check=True)
    bed("load", PYTHON)


@pytest.fixture(scope="module")
def owner(pool: Platform) -> Client:
    return Client(pool.url, pool.manage("create_token", ADMIN).stdout.split()[-1])


@pytest.mark.ci
def test_a_folder_goes_from_a_terminal_to_the_browser_and_a_batch_job(
    pool: Platform, chromium: Chromium, owner: Client
) -> None:
    visitor = Visitor(chromium, pool.url).sign_in(ADMIN)
    walk_folder(visitor, owner, amounts=AMOUNTS, within=STARTED_WITHIN)
    visitor.leave()


@pytest.mark.long
def test_three_pods_of_a_session_reach_each_other(pool: Platform, chromium: Chromium, owner: Client) -> None:
    visitor = Visitor(chromium, pool.url).sign_in(ADMIN)
    walk_cluster(visitor, owner, amounts=AMOUNTS, within=STARTED_WITHIN, has_files=False)
    visitor.leave()


@pytest.mark.long
@pytest.mark.usefixtures("python")
def test_a_cell_of_a_notebook_runs_in_jupyterlab(pool: Platform, chromium: Chromium, owner: Client) -> None:
    visitor = Visitor(chromium, pool.url).sign_in(ADMIN)
    walk_notebook(visitor, owner, resources={"cpu": "1", "mem": "1g"}, within=LAB_WITHIN)
