"""The wall while sessions come: only what changed is drawn anew, and the keyboard says what runs where."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Campus, Visit
from tests.browser.people import ADMIN, ALICE

pytestmark = [pytest.mark.browser, pytest.mark.system]


def test_a_session_appears_in_its_cell_while_the_rest_of_the_wall_stays(walk: Visit, campus: Campus) -> None:
    page = walk(ADMIN).page
    page.goto(f"{campus.platform.url}/dashboard/")
    page.get_by_role("link", name="Open the wall").click()
    tiles = page.locator(".tile")
    expect(tiles).to_have_count(2)
    tiles.evaluate_all("(tiles) => tiles.forEach((tile) => (tile.isOld = true))")
    wish = {"image": "torch-2.4", "resources": {"cpu": 1, "mem": "1g", "cuda.device": 1}}
    session = campus.alice.launch("on-the-wall", **wish)
    try:
        cell = page.locator(".tile .cell[data-who]")
        expect(cell).to_have_count(1)
        assert tiles.evaluate_all("(tiles) => tiles.every((tile) => tile.isOld)"), "they are the ones that were there"
        expect(page.locator("#wall-events")).to_contain_text("on-the-wall")
        page.locator("#wall-board").focus()
        facts = page.locator("#wall-facts")
        for key in ("ArrowRight", "ArrowRight"):
            page.keyboard.press(key)
            if ALICE in facts.inner_text():
                break
        expect(facts).to_contain_text(re.compile(rf"(busy|idle|reserved)[^–]*{ALICE}"))
        page.keyboard.press("t")
        expect(page.get_by_role("table")).to_contain_text(ALICE)
    finally:
        campus.alice.end(session["id"])
