"""Folders on the launch form in the browser, on a phone and without scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Campus, Visit
from tests.browser.people import ALICE
from tests.browser.visitor import REVIEW, run_on

pytestmark = [pytest.mark.browser, pytest.mark.system]
DATA = "Data & storage"


@pytest.fixture
def folders(campus: Campus) -> Iterator[None]:
    """Folders of Alice; what is launched with them is ended, and they go, for other tests begin without any."""
    run_on(campus.platform, "make_folders", "make_folders")
    yield
    campus.alice.end(*[one["id"] for one in campus.alice.sessions() if one["status"] in ("PENDING", "RUNNING")])
    run_on(campus.platform, "remove_folders", "make_folders")


def test_a_folder_is_mounted_from_a_phone(walk: Visit, folders: None) -> None:
    visitor = walk(ALICE, on_phone=True)
    page = visitor.page
    visitor.go("/sessions/new/?step=3")
    expect(page.get_by_text("Mounted automatically where the agent can: .cache.")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    path = page.get_by_label("Mount path of data")
    path.fill("/etc")
    expect(page.get_by_role("checkbox", name=re.compile("^data"))).to_be_checked()  # what is said about it ticks it
    fault = page.locator("#id_mounts .invalid-feedback")
    expect(fault).to_contain_text("/etc belongs to the system")  # after a second without a key
    visitor.step(REVIEW)
    expect(_card(page)).to_contain_text("/etc belongs to the system")
    visitor.step(DATA)
    path.fill("train")
    page.get_by_label("Start in data").check()
    page.get_by_label("Rights to data").select_option(label="Read only")
    visitor.step(REVIEW)
    expect(_card(page)).to_contain_text("/home/work/train")
    expect(_card(page)).to_contain_text("Start here")
    assert not visitor.accessibility_faults()
    page.reload()  # all of it is in the address
    expect(_card(page)).to_contain_text("/home/work/train")
    expect(_card(page)).to_contain_text("mounted read-only: files written elsewhere")
    launch = page.get_by_role("button", name="Launch", exact=True)
    launch.click()
    question = page.get_by_role("dialog", name="Folders are mounted read-only", exact=True)
    assert not visitor.accessibility_faults()
    question.get_by_role("button", name="Choose folders").click()
    page.get_by_label("Rights to data").select_option(label="Read and write")
    visitor.step(REVIEW)
    expect(_card(page)).not_to_contain_text("mounted read-only")
    launch.click()  # nobody asks: something is kept
    page.wait_for_url("**/?launched=*")
    visitor.go(f"/sessions/{page.url.partition('launched=')[2]}/")
    expect(page.locator("#session-mounts")).to_contain_text("/home/work/train")
    expect(page.get_by_text("Folder data is on nas").first).to_be_visible()  # which no agent mounts


@pytest.mark.core
def test_a_folder_is_created_on_the_form(walk: Visit, folders: None) -> None:
    visitor = walk(ALICE, on_phone=True)
    page = visitor.page
    visitor.go("/sessions/new/")
    page.get_by_role("button", name="Launch", exact=True).click()
    page.get_by_role("dialog", name="No folder is mounted").get_by_role("button", name="Choose folders").click()
    expect(page.get_by_role("heading", name=DATA, level=2)).to_be_visible()
    page.get_by_label("Mount path of data").fill("train")
    page.get_by_role("button", name="Create folder").click()
    dialog = page.get_by_role("dialog", name="New folder")
    name = dialog.get_by_label("Name")
    name.fill("data")
    dialog.get_by_role("button", name="Create folder").click()
    expect(dialog.locator(".is-invalid")).to_have_count(1)  # she has one of this name
    assert not visitor.accessibility_faults()
    name.fill("outcomes")
    dialog.get_by_role("button", name="Create folder").click()
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("checkbox", name=re.compile("^outcomes"))).to_be_checked()
    expect(page.get_by_label("Mount path of data")).to_have_value("train")
    expect(page.get_by_role("checkbox", name=re.compile("^data"))).to_be_checked()


def test_a_folder_is_mounted_without_scripts(walk: Visit, folders: None) -> None:
    visitor = walk(ALICE, scripts=False)
    page = visitor.page
    visitor.go("/sessions/new/")
    page.get_by_role("checkbox", name=re.compile("^models")).check()
    page.locator("#id_name").fill("with-models")
    page.get_by_role("button", name="Launch", exact=True).click()
    expect(page.get_by_role("link", name="with-models").first).to_be_visible()


def _card(page: Page) -> Locator:
    return page.get_by_role("region", name=DATA).locator("visible=true").last
