"""Sessions with a folder, as people launch them in the browser, and the folder's files."""

from __future__ import annotations

import re
from collections.abc import Mapping

from playwright.sync_api import Page, expect

from tests.browser.visitor import RESOURCES, REVIEW, Visitor
from tests.patience import patient

DATA = "Data & storage"
STARTED_MS = patient(45_000)
_AMOUNTS = {"CPU cores": "0.2", "Memory": "64m"}


def launch_with_folder(
    visitor: Visitor,
    name: str,
    folder: str,
    *,
    target: str = "",
    create: bool = False,
    command: str = "",
    amounts: Mapping[str, str] = _AMOUNTS,
) -> str:
    """Launch a shell with the folder mounted, created in the launcher if it is to be; with a command it is a batch
    session. Returns the session's id."""
    page = visitor.page
    visitor.go("/sessions/new/")
    if command:
        page.get_by_role("radio", name=re.compile("^Batch")).check()
        page.get_by_label("Startup command").fill(command)
    page.get_by_label("Name optional").fill(name)
    visitor.step(RESOURCES)
    page.get_by_role("radio", name=re.compile("^Shell")).check()
    for label, amount in amounts.items():
        page.get_by_label(label, exact=True).fill(amount)
    visitor.step(DATA)
    if create:
        page.get_by_role("button", name="Create folder").click()
        dialog = page.get_by_role("dialog", name="New folder")
        dialog.get_by_label("Name").fill(folder)
        dialog.get_by_role("button", name="Create folder").click()
        expect(dialog).to_be_hidden()
    page.get_by_role("checkbox", name=re.compile(f"^{folder}")).check()
    if target:
        page.get_by_label(f"Mount path of {folder}").fill(target)
    visitor.step(REVIEW)
    page.get_by_role("button", name="Launch", exact=True).click()  # nobody asks: something is kept
    page.wait_for_url("**/?launched=*")
    return page.url.partition("launched=")[2].partition(",")[0]


def open_terminal(visitor: Visitor, session_id: str, *, within_ms: float = STARTED_MS) -> None:
    """Open the terminal of a session once it runs."""
    visitor.go(f"/sessions/{session_id}/#terminal")
    expect(visitor.status).to_have_text("Running", timeout=within_ms)


def explorer_of(visitor: Visitor, folder: str) -> Page:
    """Open the folder from the list of folders."""
    visitor.go("/folders/")
    visitor.page.get_by_role("link", name=folder, exact=True).click()
    expect(visitor.page.get_by_role("heading", name=folder, level=1)).to_be_visible()
    return visitor.page
