"""The scheduling history in the browser: opened by the clock beside the status, narrowed, sorted, unfolded."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import THEMES, Visit
from tests.browser.people import ALICE
from tests.system.client import Client

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]


@pytest.fixture(scope="module")
def waiting(alice: Client) -> Iterator[str]:
    """The address of a session that waits for its time."""
    session = alice.launch("patient", type="batch", startup_command="true", starts_at="2090-01-01T00:00:00Z")
    yield f"/sessions/{session['id']}/"
    alice.end(session["id"])


@pytest.mark.core
@pytest.mark.parametrize("theme", THEMES)
def test_the_clock_opens_the_history_which_can_be_narrowed_sorted_and_unfolded(
    visit: Visit, waiting: str, theme: str
) -> None:
    visitor = visit(ALICE, theme=theme)
    page = visitor.page
    visitor.go(waiting)
    expect(page.locator(".state-notice")).to_contain_text("Waiting for its start time")
    page.evaluate("window.stayed = true")
    page.get_by_role("link", name="Scheduling history").press("Enter")
    expect(page.get_by_role("dialog", name="Scheduling history")).to_be_visible()
    records = page.locator("#history-rows tbody[id^='record-']")
    expect(records).to_have_count(2)
    expect(records.first).to_contain_text("Skipped")

    page.get_by_label("Result").select_option("SUCCESS")
    expect(records).to_have_count(1)
    expect(records).to_contain_text("Launched.")
    page.get_by_label("Message").fill("nothing like it")
    expect(page.locator("#history-rows")).to_contain_text("Nothing in the history matches.")
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_label("Message")).to_have_value("")
    expect(records).to_have_count(2)

    sorter = page.get_by_role("button", name="Updated at")
    sorter.press("Enter")
    expect(page.get_by_role("columnheader", name="Updated at")).to_have_attribute("aria-sort", "ascending")
    expect(records.first).to_contain_text("Launched.")
    expect(sorter).to_be_focused()
    records.first.evaluate("(row) => (row.dataset.seen = 'before')")
    page.get_by_role("button", name="Refresh").click()
    expect(page.locator("#history-rows [data-seen]")).to_have_count(0)
    expect(records.first).to_contain_text("Launched.")

    arrow = page.get_by_role("button", name=re.compile(r"^\d+ steps?$")).last
    arrow.press("Enter")
    expect(arrow).to_have_attribute("aria-expanded", "true")
    expect(page.get_by_role("columnheader", name="Ended at")).to_be_visible()
    assert visitor.accessibility_faults() == []
    assert visitor.overflow_on_a_phone() <= 0
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="Scheduling history")).to_be_focused()
    assert page.evaluate("window.stayed")
    visitor.go(f"{waiting}history/")
    assert visitor.accessibility_faults() == []
    assert visitor.overflow_on_a_phone() <= 0


def test_it_is_a_page_where_there_are_no_scripts(visit: Visit, waiting: str) -> None:
    visitor = visit(ALICE, scripts=False)
    page = visitor.page
    visitor.go(waiting)
    page.get_by_role("link", name="Scheduling history").click()
    expect(page).to_have_url(re.compile("/history/$"))
    page.get_by_label("Result").select_option("SKIPPED")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#history-rows tbody[id^='record-']")).to_have_count(1)
    page.get_by_role("button", name="Updated at").click()
    expect(page).to_have_url(re.compile("sort=updated_at"))
    expect(page.get_by_label("Result")).to_have_value("SKIPPED")
