"""The guides under Help, in the browser."""

from __future__ import annotations

import os
import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import THEMES, Visit
from tests.browser.people import ALICE

pytestmark = [pytest.mark.browser, pytest.mark.system]
_SEARCH = re.compile("^Search:")
_FOLDER = os.environ.get("BACKENDAI_TEST_PICTURES", "")


@pytest.mark.core
def test_help_is_one_click_away_and_its_contents_lead_to_sections(walk: Visit) -> None:
    visitor = walk(ALICE)
    page = visitor.page
    page.get_by_role("banner").get_by_role("link", name="Help").first.click()
    expect(page.get_by_role("heading", name="User guide", level=1)).to_be_visible()
    page.get_by_role("navigation", name="Guides").get_by_role("link", name="Idle checks").click()
    expect(page.get_by_role("heading", name="Idle checks")).to_be_in_viewport()
    assert page.url.endswith("/help/#guide-idle-checks")
    expect(page.locator("article img").first).to_have_js_property("complete", True)
    _keep(visitor.page, "help")


def test_the_search_shows_sections_while_one_types(walk: Visit) -> None:
    visitor = walk(ALICE)
    page = visitor.page
    visitor.go("/help/")
    page.keyboard.press("/")
    page.keyboard.type("bootstrap script")
    expect(page.get_by_role("heading", name=_SEARCH)).to_be_visible()
    found = page.locator("#guide-text").get_by_role("link", name="What every session finds")
    expect(found).to_have_count(2)  # the title of the section, and a link to it in another one
    assert visitor.accessibility_faults() == []
    found.first.click()
    expect(page.get_by_role("heading", name="What every session finds")).to_be_in_viewport()


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("slug", ["user-guide", "rest"])
def test_a_guide_shuts_nobody_out_and_fits_a_phone(walk: Visit, slug: str, theme: str) -> None:
    visitor = walk(ALICE, theme=theme)
    visitor.go(f"/help/{slug}/")
    expect(visitor.page.get_by_role("heading", level=1)).to_be_visible()
    assert visitor.accessibility_faults() == []
    assert visitor.overflow_on_a_phone() <= 0
    _keep(visitor.page, f"help-{slug}-{theme}")


def test_a_question_mark_of_the_launcher_leads_to_its_section(walk: Visit) -> None:
    visitor = walk(ALICE)
    visitor.go("/sessions/new/")
    visitor.step("Network")
    visitor.page.locator("details.help summary:visible").first.click()
    with visitor.page.context.expect_page() as opened:
        visitor.page.get_by_role("link", name="More in the guide").first.click()
    expect(opened.value.get_by_role("heading", name="Launch a session", exact=False)).to_be_in_viewport()
    opened.value.close()


def test_it_is_read_without_scripts(walk: Visit) -> None:
    visitor = walk(ALICE, scripts=False)
    visitor.go("/help/?q=dotfiles")
    expect(visitor.page.get_by_role("heading", name=_SEARCH)).to_be_visible()


def _keep(page: object, name: str) -> None:
    if _FOLDER:
        page.screenshot(path=f"{_FOLDER}/{name}.png")  # type: ignore[attr-defined]
