"""A folder from its creation to its sharing, in the browser, with the real file server behind the app proxy."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visit
from tests.browser.people import ADMIN, ALICE
from tests.patience import patient
from tests.system.client import fresh

pytestmark = [pytest.mark.browser, pytest.mark.system]
_PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6364f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)
_LARGE = 9 * 2**20  # beyond what travels with small files


def upload(page: Page, *paths: Path) -> None:
    page.locator("#pick-files").set_input_files([str(path) for path in paths])
    for state in page.locator(".upload-state").all():
        expect(state).to_have_text("Uploaded")


@pytest.mark.core
def test_a_folder_is_filled_looked_at_and_shared(walk: Visit, tmp_path: Path) -> None:
    visitor, name = walk(ALICE), fresh("pictures")
    page = visitor.page
    (tmp_path / "notes.txt").write_text("first line\n")
    (tmp_path / "dot.png").write_bytes(_PICTURE)
    (tmp_path / "large.bin").write_bytes(os.urandom(_LARGE))

    visitor.go("/folders/")
    page.keyboard.press("n")
    dialog = page.get_by_role("dialog", name="New folder")
    owner, members = dialog.get_by_label("Belongs to"), dialog.get_by_label("Members of the project")
    expect(members).to_be_hidden()
    owner.select_option(index=1)
    expect(members).to_be_visible()
    owner.select_option("")
    expect(members).to_be_hidden()
    dialog.get_by_label("Name").fill(name)
    dialog.get_by_role("button", name="Create folder").click()
    expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    expect(page.get_by_role("button", name="Upload files")).to_be_visible(timeout=patient(60_000))  # once it is made
    upload(page, tmp_path / "notes.txt", tmp_path / "dot.png", tmp_path / "large.bin")
    expect(page.get_by_role("link", name="large.bin", exact=True)).to_be_visible()
    assert visitor.faults_in_every_light() == []
    explorer = page.url

    with page.expect_download() as download:
        page.get_by_role("link", name="Download large.bin").click()
    assert Path(download.value.path()).read_bytes() == (tmp_path / "large.bin").read_bytes()
    page.get_by_role("link", name="dot.png", exact=True).click()
    expect(page.get_by_role("img", name="dot.png")).to_be_visible()

    visitor.go(explorer)
    page.get_by_role("link", name="notes.txt", exact=True).click()
    text = page.get_by_label("Text of the file")
    expect(text).to_have_value("first line\n")
    text.fill("second line\n")
    page.keyboard.press("Control+s")
    expect(page.get_by_text("Saved", exact=True)).to_be_visible()
    assert visitor.faults_in_every_light() == []

    visitor.go(explorer)
    page.get_by_role("button", name="Rename notes.txt").click()
    page.get_by_label("New name").fill("log.txt")
    page.get_by_role("dialog", name="Rename").get_by_role("button", name="Rename").click()
    page.get_by_label("Select log.txt").check()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("link", name="log.txt", exact=True)).to_have_count(0)
    page.get_by_role("link", name="Deleted files").click()
    page.get_by_role("button", name="Restore log.txt").click()
    expect(page.get_by_text("No deleted files")).to_be_visible()

    page.get_by_role("link", name="Sharing").click()
    page.get_by_label("E-mail address").fill(ADMIN)
    page.get_by_role("button", name="Invite").click()
    expect(page.get_by_text("invited, not yet accepted")).to_be_visible()
    assert visitor.faults_in_every_light() == []
    page.get_by_role("link", name="Settings and usage").click()
    assert visitor.faults_in_every_light() == []

    guest = walk(ADMIN)
    guest.go("/folders/")
    guest.page.get_by_role("button", name=f"Accept {name}").click()
    expect(guest.page.get_by_role("link", name=name, exact=True)).to_be_visible()
    assert guest.faults_in_every_light() == []
    for address in ("storage-hosts", "folders", "folders/link"):
        guest.go(f"/manage/{address}/")
        assert guest.faults_in_every_light() == []


def test_an_upload_goes_on_after_a_reload(walk: Visit, tmp_path: Path) -> None:
    visitor = walk(ALICE)
    page = visitor.page
    large = tmp_path / "weights.bin"
    large.write_bytes(os.urandom(4 * _LARGE))
    visitor.go("/folders/new/")
    page.get_by_label("Name").fill(fresh("weights"))
    page.get_by_role("button", name="Create folder").click()
    expect(page.get_by_role("button", name="Upload files")).to_be_visible(timeout=patient(60_000))

    network = page.context.new_cdp_session(page)
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 4 * 2**20}
    network.send("Network.emulateNetworkConditions", slow)
    page.locator("#pick-files").set_input_files(str(large))
    bar = page.locator(".upload-list progress")
    expect(bar).to_have_attribute("value", re.compile(r"0\.[2-9]"), timeout=patient(60_000))
    page.on("dialog", lambda dialog: dialog.accept())  # the page asks before it lets an upload go
    page.reload()
    network.send("Network.emulateNetworkConditions", slow | {"uploadThroughput": -1})

    sent: list[int] = []
    page.on("request", lambda one: sent.append(int(one.headers["upload-offset"])) if one.method == "PATCH" else None)
    page.locator("#pick-files").set_input_files(str(large))
    expect(page.locator(".upload-state")).to_have_text("Uploaded", timeout=patient(60_000))
    assert sent and sent[0] > 0  # not from the beginning
    with page.expect_download() as download:
        page.get_by_role("link", name="Download weights.bin").click()
    assert Path(download.value.path()).read_bytes() == large.read_bytes()
