"""An administrator asks what other rules would have done, and reads the answer."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Campus, Visit
from tests.browser.people import ADMIN
from tests.patience import patient

pytestmark = [pytest.mark.browser, pytest.mark.system]
DONE_MS = patient(60_000)


@pytest.mark.ci
def test_ended_sessions_are_replayed_and_the_page_shows_both_lines(walk: Visit, campus: Campus) -> None:
    for number in range(2):
        session = campus.alice.launch(f"was-{number}", resources={"cpu": 1, "mem": "64m"}, image="torch-2.3")
        campus.alice.end(campus.alice.wait_until_running(session["id"])["id"])
    visitor = walk(ADMIN)
    page = visitor.page
    page.get_by_role("link", name="Administration").first.click()
    page.get_by_role("link", name="What if", exact=True).click()
    page.get_by_label("Additional agents").fill("many")
    page.get_by_role("button", name="Replay sessions").click()
    expect(page.get_by_text("Agents are written as")).to_be_visible()
    page.get_by_label("Additional agents").fill("2 x cpu=4,mem=8g")
    page.get_by_label("Which session starts next").select_option("lifo")
    page.get_by_role("button", name="Replay sessions").click()
    expect(page.get_by_text("As it is: fifo")).to_be_visible(timeout=DONE_MS)
    expect(page.locator("polyline")).to_have_count(4)
    page.locator("svg[data-plot]").first.focus()
    page.keyboard.press("Home")
    expect(page.locator(".plot-readout").first).to_contain_text("what if")
    assert visitor.faults_in_every_light() == []
