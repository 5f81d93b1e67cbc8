"""JupyterLab and Notebook without any container engine, with the packages that a package index really has."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.interpreters import CACHE
from tests.browser.chromium import Chromium
from tests.browser.notebooks import plot_and_save, run_code
from tests.browser.people import ADMIN
from tests.browser.visitor import Visitor, run_on
from tests.patience import patient, until
from tests.system.client import Body, Client
from tests.system.platform import ROOT, Platform

pytestmark = [pytest.mark.browser, pytest.mark.system, pytest.mark.timeout(600)]
_MADE_WITHIN = 600.0


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """The platform with native sessions, once their environment is there."""
    folder = tmp_path_factory.mktemp("native")
    made = CACHE / "native"  # once on a machine
    subprocess.run(
        [sys.executable, "bin/build-native", "--into", made], cwd=ROOT, check=True, timeout=patient(_MADE_WITHIN)
    )
    with Platform(folder, backend="process", images={}, extra={"BACKENDAI_AGENT_ENVIRONMENTS": str(made)}) as platform:
        yield platform


@pytest.fixture(scope="module")
def owner(native: Platform) -> Client:
    run_on(native, "make_administrator")
    return Client(native.url, native.manage("create_token", ADMIN).stdout.split()[-1])


@pytest.fixture
def session(owner: Client) -> Iterator[Body]:
    resources = {"cpu": "1", "mem": "1g"}
    session = owner.wait_until_running(owner.launch("with-lab", image="python", resources=resources)["id"])
    yield session
    owner.end(session["id"])


def home_of(native: Platform, session: Body) -> Path:
    """Return the session's home folder on this machine."""
    kernels = [*native.data.glob("agents/*/kernels/*/home"), *Path("/var/lib").glob("backendai-kernels-*/*/home")]
    found = [path for path in kernels if path.parent.name in {one["id"] for one in session["kernels"]}]
    return found[0]


@pytest.mark.ci
def test_a_cell_runs_a_plot_shows_and_the_notebook_is_saved(
    native: Platform, chromium: Chromium, session: Body, owner: Client
) -> None:
    walk_notebook("jupyterlab", native, chromium, session, owner)


@pytest.mark.long
def test_jupyter_notebook_does_the_same(native: Platform, chromium: Chromium, session: Body, owner: Client) -> None:
    walk_notebook("jupyter", native, chromium, session, owner)


def walk_notebook(service: str, native: Platform, chromium: Chromium, session: Body, owner: Client) -> None:
    """Run a cell with a plot, save, and read the file from the console."""
    visitor = Visitor(chromium, native.url).sign_in(ADMIN)
    page = visitor.page
    visitor.go(f"/sessions/{session['id']}/apps/{service}/")
    home = home_of(native, owner.session(session["id"]))
    notebook = home / "Untitled.ipynb"
    plot_and_save(page, service)
    until(lambda: notebook.exists() and "image/png" in notebook.read_text(), 20.0, "the notebook is saved")
    seen = run_code(owner, session, "import json; print(json.load(open('Untitled.ipynb'))['nbformat'])")
    assert "4\\n" in json.dumps(seen["items"])
    page.context.close()
