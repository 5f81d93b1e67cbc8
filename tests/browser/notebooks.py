"""JupyterLab, Jupyter Notebook and TensorBoard in a browser, and code beside them."""

from __future__ import annotations

import json
import re
from contextlib import suppress

from playwright.sync_api import Error, Page, expect

from tests.browser.visitor import Visitor
from tests.patience import patient
from tests.system.client import Body, Client

SLOW_MS = patient(90_000)
_EVENTS = """
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter("/home/work/runs/first")
for step in range(20):
    value = Summary.Value(tag="loss_of_run", simple_value=1 / (step + 1))
    writer.add_event(Event(step=step, summary=Summary(value=[value])))
writer.close()
print("written")
"""
PLOT = "%matplotlib inline\nimport matplotlib.pyplot as plt\nprint(6*7)\nplt.plot([1, 4, 9]);"
_NEW_NOTEBOOK = """async (token) => await fetch("/api/contents/Untitled.ipynb", {
  method: "PUT", headers: { "X-XSRFToken": token, "Content-Type": "application/json" },
  body: JSON.stringify({ type: "notebook", content: { nbformat: 4, nbformat_minor: 5,
    metadata: { kernelspec: { name: "python3", display_name: "Python 3 (ipykernel)", language: "python" } },
    cells: [{ id: "one", cell_type: "code", source: "", metadata: {}, outputs: [], execution_count: null }] } }),
})"""


def plot_and_save(page: Page, service: str) -> None:
    """Make a notebook in the app that the page is about to show, run a cell that plots, and save it."""
    page.wait_for_url(re.compile(r"/(lab|tree)"), timeout=SLOW_MS)
    origin = page.url.split("/lab")[0].split("/tree")[0]
    if service == "jupyterlab":
        page.locator(".jp-LauncherCard[data-category=Notebook]").first.click(timeout=SLOW_MS)
    else:
        token = page.evaluate("document.cookie.match(/_xsrf=([^;]+)/)[1]")
        page.evaluate(_NEW_NOTEBOOK, token)
        page.goto(f"{origin}/notebooks/Untitled.ipynb")
    expect(page.locator(".jp-Notebook .jp-CodeCell").first).to_be_visible(timeout=SLOW_MS)
    run_cell(page, PLOT)
    expect(page.locator(".jp-OutputArea-output pre", has_text="42").first).to_be_visible(timeout=SLOW_MS)
    expect(page.locator(".jp-RenderedImage img").first).to_be_visible(timeout=SLOW_MS)
    page.keyboard.press("Control+s")
    if service == "jupyterlab":  # it offers another name
        page.locator(".jp-Dialog .jp-mod-accept").click()


def run_cell(page: Page, code: str, *, within_ms: float = SLOW_MS) -> None:
    """Type into the first cell and run it, once more when the page had no kernel yet. ``within_ms``: until it
    has one."""
    expect(page.locator(".jp-KernelName, .jp-Toolbar-kernelName").first).to_contain_text("Python 3", timeout=within_ms)
    expect(page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").first).to_be_visible(timeout=within_ms)
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
            cell.locator(".jp-OutputArea-child").first.wait_for(timeout=max(20_000, within_ms // 4))
            return


def run_code(owner: Client, session: Body, code: str, mode: str = "query") -> Body:
    """Return the run when it has finished."""
    path = f"sessions/{session['id']}/runs/"
    run = owner._send("POST", path, json={"mode": mode, "code": code, "wait": 20}).json()
    while run["state"] not in ("FINISHED", "LOST"):
        run = owner._send("GET", f"{path}{run['run_id']}/?wait=20&after=0").json()
    assert (run["state"], run["exit_code"]) == ("FINISHED", 0), run
    return dict(run)


def see_a_run_in_tensorboard(visitor: Visitor, owner: Client, session: Body) -> None:
    """Write the events of a run into the home folder, and look at them where the app's argument says."""
    assert "written" in json.dumps(run_code(owner, session, _EVENTS)["items"])
    page = visitor.page
    visitor.go(f"/sessions/{session['id']}/apps/tensorboard/settings/")
    page.get_by_label("--logdir").fill("/home/work/runs")
    page.get_by_role("button", name="Save").click()
    page.locator("#app-tensorboard").wait_for()
    visitor.go(f"/sessions/{session['id']}/apps/tensorboard/")
    expect(page.get_by_text("loss_of_run").first).to_be_visible(timeout=SLOW_MS)
    page.context.close()
