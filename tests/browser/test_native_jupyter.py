"""JupyterLab and Notebook without any container engine, with the packages that a package index really has."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Error, Page, expect

from tests.browser.chromium import Chromium
from tests.browser.people import ADMIN
from tests.browser.visitor import Visitor, run_on
from tests.system.client import Body, Client
from tests.system.platform import ROOT, Platform
from tests.system.polling import until

pytestmark = [pytest.mark.browser, pytest.mark.system, pytest.mark.long]
_MADE_WITHIN = 600.0
_SLOW_MS = 90_000
_NEW_NOTEBOOK = """async (token) => await fetch("/api/contents/Untitled.ipynb", {
  method: "PUT", headers: { "X-XSRFToken": token, "Content-Type": "application/json" },
  body: JSON.stringify({ type: "notebook", content: { nbformat: 4, nbformat_minor: 5,
    metadata: { kernelspec: { name: "python3", display_name: "Python 3 (ipykernel)", language: "python" } },
    cells: [{ id: "one", cell_type: "code", source: "", metadata: {}, outputs: [], execution_count: null }] } }),
})"""
_PLOT = "%matplotlib inline\nimport matplotlib.pyplot as plt\nprint(6*7)\nplt.plot([1, 4, 9]);"


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """The platform with native sessions, once their environment is there."""
    folder = tmp_path_factory.mktemp("native")
    made = folder / "environments"
    subprocess.run([sys.executable, "bin/build-native", "--into", made], cwd=ROOT, check=True, timeout=_MADE_WITHIN)
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


def run_cell(page: Page, code: str) -> None:
    """Type into the first cell and run it, once more when the page had no kernel yet."""
    expect(page.locator(".jp-KernelName, .jp-Toolbar-kernelName").first).to_contain_text("Python 3", timeout=_SLOW_MS)
    expect(page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").first).to_be_visible(timeout=_SLOW_MS)
    cell = page.locator(".jp-Notebook .jp-CodeCell").first
    choice = page.locator(".jp-Dialog .jp-mod-accept")
    for attempt in range(4):
        if choice.count():
            choice.click()
        cell.locator(".cm-content").click()
        if not attempt:
            page.keyboard.insert_text(code)
        page.keyboard.press("Shift+Enter")
        with suppress(Error):
            cell.locator(".jp-OutputArea-child").first.wait_for(timeout=20_000)
            return


def home_of(native: Platform, session: Body) -> Path:
    """Return the session's home folder on this machine."""
    kernels = [*native.data.glob("agents/*/kernels/*/home"), *Path("/var/lib").glob("backendai-kernels-*/*/home")]
    found = [path for path in kernels if path.parent.name in {one["id"] for one in session["kernels"]}]
    return found[0]


@pytest.mark.parametrize("service", ["jupyterlab", "jupyter"])
def test_a_cell_runs_a_plot_shows_and_the_notebook_is_saved(
    native: Platform, chromium: Chromium, session: Body, service: str, owner: Client
) -> None:
    visitor = Visitor(chromium, native.url).sign_in(ADMIN)
    page = visitor.page
    visitor.go(f"/sessions/{session['id']}/apps/{service}/")
    page.wait_for_url(re.compile(r"/(lab|tree)"), timeout=_SLOW_MS)
    origin = page.url.split("/lab")[0].split("/tree")[0]
    home = home_of(native, owner.session(session["id"]))
    notebook = home / "Untitled.ipynb"
    if service == "jupyterlab":
        page.locator(".jp-LauncherCard[data-category=Notebook]").first.click(timeout=_SLOW_MS)
    else:
        token = page.evaluate("document.cookie.match(/_xsrf=([^;]+)/)[1]")
        page.evaluate(_NEW_NOTEBOOK, token)
        page.goto(f"{origin}/notebooks/Untitled.ipynb")
    expect(page.locator(".jp-Notebook .jp-CodeCell").first).to_be_visible(timeout=_SLOW_MS)
    run_cell(page, _PLOT)
    expect(page.locator(".jp-OutputArea-output pre", has_text="42").first).to_be_visible(timeout=_SLOW_MS)
    expect(page.locator(".jp-RenderedImage img").first).to_be_visible(timeout=_SLOW_MS)
    page.keyboard.press("Control+s")
    if service == "jupyterlab":  # it offers another name
        page.locator(".jp-Dialog .jp-mod-accept").click()
    until(lambda: notebook.exists() and "image/png" in notebook.read_text(), 20.0, "the notebook is saved")
    page.context.close()
