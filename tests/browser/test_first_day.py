"""An administrator who has never seen the portal sets up a lab in the browser alone, and somebody works in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chromium import Chromium
from tests.browser.people import ADMIN, PASSWORD
from tests.browser.visitor import RESOURCES, Visitor, run_on
from tests.system.platform import Platform

pytestmark = [pytest.mark.browser, pytest.mark.system]
MINA = "mina@example.com"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A new platform with two simulated machines, and nothing that anybody has set."""
    with Platform(tmp_path_factory.mktemp("first-day"), agents=2, backend="simulated", images={}) as platform:
        run_on(platform, "make_administrator")
        yield platform


@pytest.mark.long  # 35 s of a processor: the steps of this day are in other tests, too
def test_a_lab_is_set_up_and_somebody_who_was_invited_reads_why_a_second_session_waits(
    lab: Platform, chromium: Chromium
) -> None:
    admin = Visitor(chromium, lab.url).sign_in(ADMIN)
    page = admin.page
    page.get_by_role("link", name="Administration").first.click()
    _limit_and_project(page)
    link = _invitation(page)
    _group_with_both_machines(page)
    _preset(page)
    _image(page)
    mina = Visitor(chromium, lab.url)
    mina.go(link)
    mina.page.get_by_label("Password", exact=True).fill(PASSWORD)
    mina.page.get_by_label("Repeat password").fill(PASSWORD)
    mina.page.get_by_role("button", name="Create account").click()
    expect(mina.page.get_by_text("You are a member of project")).to_be_visible()
    _launch(mina, "first")
    expect(mina.status).to_have_text("Running")
    _launch(mina, "second")
    expect(mina.status).to_have_text("Pending")
    notice = mina.page.locator("#session-head .state-notice")
    expect(notice).to_contain_text("Waiting for a limit")
    expect(notice).to_contain_text("1 of at most 1")
    mina.leave()
    admin.leave()


def _limit_and_project(page: Page) -> None:
    _new(page, "Resource policies", "New policy")
    page.get_by_label("Name").fill("one-each")
    page.get_by_label("Sessions", exact=False).first.fill("1")
    _save(page, "Policy one-each is saved.")
    _new(page, "Projects", "New project")
    page.get_by_label("Name").fill("vision")
    page.get_by_label("Policy").select_option("one-each")
    _save(page, "vision")


def _invitation(page: Page) -> str:
    _new(page, "Invitations", "Invite")
    page.get_by_label("E-mail address").fill(MINA)
    page.get_by_label("Project", exact=True).select_option(label="default / vision")
    page.get_by_role("button", name="Invite person", exact=True).click()
    return page.get_by_role("textbox", name="The link").input_value()


def _group_with_both_machines(page: Page) -> None:
    _new(page, "Resource groups", "New resource group")
    page.get_by_label("Name").fill("gpu")
    page.get_by_label("Default group").check()
    page.get_by_label("Which session starts next").select_option("drf")
    _save(page, "Resource group gpu is saved")
    for name in ("local-1", "local-2"):
        _menu(page, "Agents")
        page.get_by_role("link", name=name, exact=True).click()
        page.get_by_role("link", name="Move to another group", exact=True).click()
        page.get_by_label("Resource group").select_option(label="gpu")
        page.get_by_role("button", name="Move to another group").click()
        expect(page.get_by_role("link", name="gpu", exact=True)).to_be_visible()


def _preset(page: Page) -> None:
    _new(page, "Presets", "New preset")
    page.get_by_label("Name").fill("small")
    page.get_by_label("Resource group").select_option(label="gpu")
    page.get_by_label("Amounts").fill("cpu=1, mem=512m")
    page.get_by_label("Shared memory").fill("64m")
    _save(page, "Preset small is saved.")


def _image(page: Page) -> None:
    _menu(page, "Images")
    page.get_by_role("button", name="Import images found on agents").click()
    page.get_by_role("cell", name="python").first.get_by_role("link").click()
    page.get_by_role("checkbox", name="Enabled").check()
    _save(page, "is saved")


def _launch(visitor: Visitor, name: str) -> None:
    page = visitor.page
    visitor.go("/sessions/new/")
    page.get_by_label("Name optional").fill(name)
    visitor.step(RESOURCES)
    page.get_by_role("radio", name=re.compile("^small")).check()
    visitor.launch()


def _new(page: Page, entry: str, button: str) -> None:
    _menu(page, entry)
    page.get_by_role("link", name=button).first.click()


def _menu(page: Page, entry: str) -> None:
    page.get_by_role("navigation", name="Administration").get_by_role("link", name=entry, exact=True).click()


def _save(page: Page, said: str) -> None:
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text(said, exact=False).first).to_be_visible()
