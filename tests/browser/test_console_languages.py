"""The console before a native session with kernels of Jupyter: languages, displays that change, a saved notebook."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.agent.interpreters import ensure_jupyter_environments
from tests.browser.chromium import Chromium
from tests.browser.people import ADMIN
from tests.browser.visitor import Visitor, run_on
from tests.patience import patient
from tests.system.client import Body, Client
from tests.system.platform import Platform

pytestmark = [pytest.mark.browser, pytest.mark.system]


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """The platform with native sessions, whose environment has Python and Bash."""
    folder = tmp_path_factory.mktemp("languages")
    made = folder / "environments"
    shutil.copytree(ensure_jupyter_environments(), made, symlinks=True)
    with Platform(folder, backend="process", images={}, extra={"BACKENDAI_AGENT_ENVIRONMENTS": str(made)}) as platform:
        yield platform


@pytest.fixture(scope="module")
def owner(native: Platform) -> Client:
    run_on(native, "make_administrator")
    return Client(native.url, native.manage("create_token", ADMIN).stdout.split()[-1])


@pytest.fixture(scope="module")
def session(owner: Client) -> Iterator[Body]:
    resources = {"cpu": "1", "mem": "1g"}
    session = owner.wait_until_running(owner.launch("polyglot", image="python", resources=resources)["id"])
    yield session
    owner.end(session["id"])


@pytest.mark.ci  # 20 s of a processor
def test_two_languages_changing_displays_and_a_notebook_in_the_home_folder(
    native: Platform, chromium: Chromium, session: Body, owner: Client
) -> None:
    visitor = Visitor(chromium, native.url).sign_in(ADMIN)
    page = visitor.page
    visitor.go(f"/sessions/{session['id']}/console/")
    expect(page.locator("#console-state")).to_have_text("Connected")
    code, last = page.get_by_label("Code", exact=True), page.locator(".console-cell:not([hidden])").last
    code.fill("from IPython.display import display\nshown = display('before', display_id=True)\nshown.update('after')")
    code.press("Shift+Enter")
    expect(last.locator(".console-cell-state")).to_have_text("Finished", timeout=patient(60_000))
    expect(last.locator(".console-result")).to_have_text(["'after'"])
    page.get_by_role("button", name="New context").click()
    dialog = page.get_by_role("dialog", name="New context")
    expect(dialog.get_by_label("Language").locator("option")).to_have_text(
        ["Default", "Python 3 (ipykernel) (python3)", "Bash (bash)"]
    )
    dialog.get_by_label("Name").fill("shell")
    dialog.get_by_label("Language").select_option("bash")
    dialog.get_by_role("button", name="Create context").click()
    code.fill("greeting=hello\necho $greeting $((6*7))")
    code.press("Shift+Enter")
    expect(last.locator(".console-stdout")).to_have_text("hello 42\n", timeout=patient(60_000))
    assert visitor.accessibility_faults() == []
    page.get_by_role("button", name="Save notebook").click()
    expect(page.locator("#console-notice")).to_contain_text("saved as shell.ipynb in the home folder")
    expect(page.locator("#console-notice").get_by_role("button", name="Open JupyterLab")).to_be_visible()
    saved = json.loads(owner._get(f"sessions/{session['id']}/files/shell.ipynb").content)
    assert saved["metadata"]["kernelspec"]["name"] == "bash"
    assert saved["cells"][0]["outputs"][0]["text"] == ["hello 42\n"]
    page.get_by_role("button", name="Save notebook").click()
    expect(page.locator("#console-notice")).to_contain_text("saved as shell-2.ipynb")
    page.get_by_role("button", name="Delete context").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete context").click()
    expect(page.locator("#console-context option")).to_have_text([re.compile("^main")])
    page.reload()
    expect(page.locator("#console-state")).to_have_text("Connected")
    expect(page.locator("#console-context option")).to_have_text([re.compile("^main")])
    expect(page.get_by_role("button", name="Delete context")).to_be_disabled()
    page.context.close()
