"""What people do with sessions every day, on whatever their kernels run."""

from __future__ import annotations

import re
from collections.abc import Mapping

from playwright.sync_api import expect

from tests.browser.mounting import explorer_of, launch_with_folder, open_terminal
from tests.browser.notebooks import run_cell
from tests.browser.visitor import RESOURCES, Visitor
from tests.patience import patient
from tests.system.client import Client

FOLDER = "corpus"
Amounts = Mapping[str, str]


def walk_folder(visitor: Visitor, client: Client, *, amounts: Amounts, within: int) -> None:
    """Write in a terminal into a new folder, see the file in the browser, read it in a batch job, and read its log.
    ``within``: seconds that a start may take."""
    page = visitor.page
    train = launch_with_folder(visitor, "train", FOLDER, create=True, amounts=amounts)
    open_terminal(visitor, train, within_ms=patient(within * 1000))
    visitor.type(f"echo loss-$((40+2)) > ~/{FOLDER}/model.txt; echo saved-$?")
    expect(visitor.screen).to_contain_text("saved-0", timeout=patient(within * 1000))
    explorer_of(visitor, FOLDER).get_by_role("link", name="model.txt", exact=True).click()
    expect(page.get_by_label("Text of the file")).to_have_value("loss-42\n")
    client.end(train)
    command = f"cat ~/{FOLDER}/model.txt; echo read-$((40+2))"
    batch = launch_with_folder(visitor, "evaluate", FOLDER, command=command, amounts=amounts)
    assert client.wait_for(batch, "TERMINATED", seconds=within)["status_reason"] == "task-finished"
    visitor.go(f"/sessions/{batch}/log/")
    expect(page.locator("main")).to_contain_text("loss-42")
    expect(page.locator("main")).to_contain_text("read-42")


def walk_cluster(visitor: Visitor, client: Client, *, amounts: Amounts, within: int, has_files: bool = True) -> None:
    """Launch a session of three kernels, and reach the others by their names from its terminal. ``has_files``: its
    kernels get host files and SSH to each other; launcher and session say so if not."""
    page = visitor.page
    visitor.go("/sessions/new/")
    page.get_by_label("Name optional").fill("together")
    visitor.step(RESOURCES)
    page.get_by_role("radio", name=re.compile("^Shell")).check()
    for label, amount in amounts.items():
        page.get_by_label(label, exact=True).fill(amount)
    page.get_by_label("Kernels", exact=True).fill("3")
    if not has_files:
        expect(page.locator("#kernels-now")).to_contain_text("no host files and no SSH to each other")
    session = visitor.launch("#terminal")
    expect(visitor.status).to_have_text("Running", timeout=patient(3 * within * 1000))
    expect(page.get_by_text("no host files and no SSH to each other")).to_have_count(0 if has_files else 1)
    # Nobody listens there: a refusal comes from the other kernel, and silence would say that there is none.
    ask = "until nc $one 9 2>&1 </dev/null | grep -q refused; do sleep 1; done; echo $one-is-there"
    visitor.type(f"for one in sub1 sub2; do {ask}; done")
    for name in ("sub1", "sub2"):
        expect(visitor.screen).to_contain_text(f"{name}-is-there", timeout=patient(within * 1000))
    client.end(session)


def walk_notebook(visitor: Visitor, client: Client, *, resources: Amounts, within: int) -> None:
    """Run a cell of a new notebook in JupyterLab, in the image that people start from. ``within``: seconds that a start
    and each part of JupyterLab may take."""
    session = client.launch("notebook", image="python", resources=dict(resources))
    client.wait_until_running(session["id"], within)
    page = visitor.page
    visitor.go(f"/sessions/{session['id']}/apps/jupyterlab/")
    page.locator(".jp-LauncherCard[data-category=Notebook]").first.click(timeout=patient(within * 1000))
    expect(page.locator(".jp-Notebook .jp-CodeCell").first).to_be_visible(timeout=patient(within * 1000))
    run_cell(page, "print(6*7)", within_ms=patient(within * 1000))
    expect(page.locator(".jp-OutputArea-output pre", has_text="42").first).to_be_visible(timeout=patient(within * 1000))
    page.context.close()
    client.end(session["id"])
