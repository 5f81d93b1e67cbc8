"""A folder from the launcher to a colleague: a session writes, another reads under an alias, and Bob may read."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visit
from tests.browser.people import ALICE, BOB
from tests.browser.visitor import RESOURCES, REVIEW, Visitor, run_on
from tests.system.client import Client
from tests.system.platform import Platform

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system, pytest.mark.long]
DATA = "Data & storage"
NAME, ALIAS = "corpus", "weights"
_STARTED_MS = 45_000


def launch(visitor: Visitor, name: str, target: str = "", create: bool = False) -> str:
    """Launch a shell with the folder mounted, made in the launcher if it is to be; returns the session's id."""
    page = visitor.page
    visitor.go("/sessions/new/")
    page.get_by_label("Name optional").fill(name)
    visitor.step(RESOURCES)
    page.get_by_role("radio", name=re.compile("^Shell")).check()
    page.get_by_label("CPU cores", exact=True).fill("0.2")
    page.get_by_label("Memory", exact=True).fill("64m")
    visitor.step(DATA)
    if create:
        page.get_by_role("button", name="Create folder").click()
        dialog = page.get_by_role("dialog", name="New folder")
        dialog.get_by_label("Name").fill(NAME)
        dialog.get_by_role("button", name="Create folder").click()
        expect(dialog).to_be_hidden()
    mounted = page.get_by_role("checkbox", name=re.compile(f"^{NAME}"))
    mounted.check()
    if target:
        page.get_by_label(f"Mount path of {NAME}").fill(target)
    visitor.step(REVIEW)
    page.get_by_role("button", name="Launch", exact=True).click()  # nobody asks: something is kept
    page.wait_for_url("**/?launched=*")
    session_id = page.url.partition("launched=")[2].partition(",")[0]
    visitor.go(f"/sessions/{session_id}/#terminal")
    expect(visitor.status).to_have_text("Running", timeout=_STARTED_MS)
    return session_id


def explorer_of(visitor: Visitor) -> Page:
    """Open the folder from the list of folders."""
    visitor.go("/folders/")
    visitor.page.get_by_role("link", name=NAME, exact=True).click()
    expect(visitor.page.get_by_role("heading", name=NAME, level=1)).to_be_visible()
    return visitor.page


def test_a_folder_goes_from_session_to_session_and_to_a_colleague_who_cannot_write(
    visit: Visit, platform: Platform, alice: Client
) -> None:
    bob = Client(platform.url, run_on(platform, "make_colleague"))
    hers = visit(ALICE)
    train = launch(hers, "train", create=True)
    hers.type(f"echo loss-$((40+2)) > ~/{NAME}/model.txt; echo saved-$?")
    expect(hers.screen).to_contain_text("saved-0")
    page = explorer_of(hers)
    expect(page.get_by_role("link", name="model.txt", exact=True)).to_be_visible()
    folder = page.url.split("/folders/")[1].split("/")[0]
    page.get_by_role("link", name="model.txt", exact=True).click()
    expect(page.get_by_label("Text of the file")).to_have_value("loss-42\n")
    alice.end(train)

    again = launch(hers, "evaluate", target=ALIAS)
    hers.type(f"cat ~/{ALIAS}/model.txt && echo more >> ~/{ALIAS}/model.txt; pwd")
    expect(hers.screen).to_contain_text("loss-42")
    page.get_by_role("tab", name="Overview").click()
    expect(page.locator("#session-mounts")).to_contain_text(f"/home/work/{ALIAS}")
    alice.end(again)

    explorer_of(hers).get_by_role("link", name="Sharing").click()
    page.get_by_label("E-mail address").fill(BOB)
    page.get_by_label("May", exact=True).select_option(label="view")
    page.get_by_role("button", name="Invite").click()
    expect(page.get_by_text("invited, not yet accepted")).to_be_visible()

    his = visit(BOB)
    his.go("/folders/")
    his.page.get_by_role("button", name=f"Accept {NAME}").click()
    explorer_of(his)
    expect(his.page.get_by_role("button", name="Upload files")).to_have_count(0)
    expect(his.page.get_by_role("button", name=re.compile("^Rename"))).to_have_count(0)
    with his.page.expect_download() as download:
        his.page.get_by_role("link", name="Download model.txt").click()
    assert download.value.path().read_text() == "loss-42\nmore\n"
    for verb, wish in (("directories/", {"path": "d"}), ("deletions/", {"paths": ["model.txt"]})):
        assert bob._send("POST", f"folders/{folder}/{verb}", json=wish).status_code == 403
    reads = launch(his, "reads")
    his.type(f"cat ~/{NAME}/model.txt; echo x > ~/{NAME}/model.txt; rm -f ~/{NAME}/model.txt; mkdir ~/{NAME}/d")
    expect(his.screen).to_contain_text("more")
    expect(his.screen).to_contain_text(re.compile("(Read-only file system.*){3}", re.DOTALL))
    bob.end(reads)
    platform.audit()
