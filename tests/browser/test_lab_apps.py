"""A notebook and TensorBoard in a container, opened from the panel of its session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chromium import Chromium
from tests.browser.notebooks import SLOW_MS, run_cell, see_a_run_in_tensorboard
from tests.browser.people import ADMIN
from tests.browser.visitor import Visitor, run_on
from tests.images.package_images import ensure_lab_image
from tests.patience import until
from tests.system.client import Body, Client
from tests.system.images import ensure_tiny
from tests.system.platform import Platform

pytestmark = [
    pytest.mark.browser,
    pytest.mark.docker,
    pytest.mark.system,
    pytest.mark.ci,
    pytest.mark.timeout(600),  # the first time on a machine the packages are fetched
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    ensure_tiny()
    with Platform(tmp_path_factory.mktemp("lab"), images={"lab": ensure_lab_image()}) as platform:
        run_on(platform, "make_administrator")
        yield platform


@pytest.fixture(scope="module")
def owner(lab: Platform) -> Client:
    return Client(lab.url, lab.manage("create_token", ADMIN).stdout.split()[-1])


@pytest.fixture(scope="module")
def session(owner: Client) -> Iterator[Body]:
    folder = owner._send("POST", "folders/", json={"name": "kept"}).json()["id"]
    until(lambda: owner.folder(folder)["status"] == "READY", what="the folder is ready")
    launch = {"image": "lab", "resources": {"cpu": "2", "mem": "1500m"}, "mounts": [{"folder": folder}]}
    session = owner.wait_until_running(owner.launch("apps", **launch)["id"])
    yield session
    owner.end(session["id"])


def test_a_cell_runs_and_notebook_and_terminal_share_files(
    lab: Platform, chromium: Chromium, owner: Client, session: Body
) -> None:
    visitor = Visitor(chromium, lab.url).sign_in(ADMIN)
    visitor.go(f"/sessions/{session['id']}/")
    visitor.page.locator("#apps-button").click()
    with visitor.page.context.expect_page() as opened:
        visitor.page.locator("#session-box #app-jupyterlab").click()
    page = opened.value
    page.locator(".jp-LauncherCard[data-category=Notebook]").first.click(timeout=SLOW_MS)
    expect(page.locator(".jp-Notebook .jp-CodeCell").first).to_be_visible(timeout=SLOW_MS)
    code = "open('by-notebook', 'w').write('seen')\nprint(6*7, open('by-terminal').read())"
    with owner.terminal(session["id"]) as terminal:
        terminal.run("echo also-$((40+2)) >by-terminal; cat by-terminal", "also-42")
        run_cell(page, code)
        shown = page.locator(".jp-OutputArea-output pre", has_text="42 also-42").first
        expect(shown).to_be_visible(timeout=SLOW_MS)
        _save(page)
        path = f"sessions/{session['id']}/files/kept/Untitled.ipynb"
        until(lambda: "42 also-42" in owner._send("GET", path).text, 20.0, "the notebook is saved")
        terminal.run("cd ~/kept && ls; cat by-notebook; echo", r"Untitled\.ipynb[^$]*seen")
    visitor.page.context.close()


def _save(page: Page) -> None:
    page.keyboard.press("Control+s")
    page.locator(".jp-Dialog .jp-mod-accept").click()  # it offers another name


def test_tensorboard_shows_a_run_where_its_argument_says(
    lab: Platform, chromium: Chromium, owner: Client, session: Body
) -> None:
    see_a_run_in_tensorboard(Visitor(chromium, lab.url).sign_in(ADMIN), owner, session)
