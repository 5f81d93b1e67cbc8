"""What a phone's width changes: the menu of pages, and the answer at the foot of the launch form."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.chromium import PHONE
from tests.browser.conftest import THEMES, Campus, Visit
from tests.browser.people import ADMIN, ALICE

pytestmark = [pytest.mark.browser, pytest.mark.system]


@pytest.mark.core
@pytest.mark.parametrize("theme", THEMES)
def test_every_page_of_the_menu_is_in_sight(walk: Visit, theme: str) -> None:
    visitor = walk(ADMIN, on_phone=True, theme=theme)
    page = visitor.page
    menu = page.get_by_role("navigation", name="Main")
    expect(menu).to_have_count(0)
    page.get_by_role("banner").get_by_text("Menu", exact=True).click()
    for name in ("Sessions", "Dashboard", "Agents", "Administration"):
        expect(menu.get_by_role("link", name=name)).to_be_in_viewport(ratio=1)
    expect(menu.get_by_role("link", name="Sessions")).to_have_attribute("aria-current", "page")
    assert visitor.accessibility_faults() == []
    menu.get_by_role("link", name="Administration").click()
    expect(page).to_have_url(re.compile("/manage/"))


def test_an_announcement_leaves_the_hint_below_a_terminal_in_sight(walk: Visit, campus: Campus) -> None:
    session = campus.alice.launch("announced")
    campus.alice.wait_until_running(session["id"], 30)
    visitor = walk(ALICE)
    page = visitor.page
    page.set_viewport_size({"width": 1280, "height": 900})
    visitor.go(f"/sessions/{session['id']}/#terminal")
    expect(page.locator("[data-announcement]")).to_be_visible()
    expect(page.get_by_text("The terminal stays alive on the server")).to_be_in_viewport(ratio=1)
    visitor.go(f"/sessions/{session['id']}/console/")
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    tops = "(bar) => new Set([...bar.children].filter((one) => one.offsetParent).map((one) => one.offsetTop)).size"
    assert page.locator(".console-tools").evaluate(tops) == 1, "the tools of a console are one row, which scrolls"
    assert visitor.overflow_on_a_phone() <= 0
    campus.alice.end(session["id"])


def test_an_answer_that_is_no_start_takes_one_line_until_it_is_asked_for(walk: Visit) -> None:
    visitor = walk(ALICE, on_phone=True)
    page = visitor.page
    visitor.go("/sessions/new/?step=2&preset=&cpu=64&mem=1&mem_unit=g")
    line, more = page.locator("#launch-outlook .outlook-line"), page.get_by_role("button", name="Show the whole answer")
    expect(line).to_contain_text("Cannot be launched:")
    bar = page.locator(".launch-bar")
    small = bar.bounding_box()
    assert small is not None and small["height"] < PHONE["height"] / 6
    more.click()
    expect(more).to_have_attribute("aria-expanded", "true")
    large = bar.bounding_box()
    assert large is not None and large["height"] > small["height"]
    more.click()
    assert bar.bounding_box() == small
    more.click()
    assert visitor.accessibility_faults() == []
    assert visitor.overflow_on_a_phone() <= 0
