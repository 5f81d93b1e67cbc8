"""An administrator changes the rules of a group in the browser, and the queue follows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import THEMES, Visit
from tests.browser.people import ADMIN
from tests.browser.visitor import Visitor
from tests.system.client import Body, Client

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]


@pytest.fixture
def queue(alice: Client) -> Iterator[list[Body]]:
    """Two sessions that wait for an agent which a third one fills, the older first."""
    full = alice.wait_until_running(alice.launch("fills-it", resources={"cpu": 4, "mem": "64m"})["id"])
    waiting = [alice.launch(name, resources={"cpu": 1, "mem": "64m"}) for name in ("older", "newer")]
    yield waiting
    alice.end(*[each["id"] for each in (full, *waiting)])


def test_another_sequence_is_chosen_and_the_next_pass_turns_the_queue(visit: Visit, queue: list[Body]) -> None:
    visitor = _at_the_rules(visit)
    page = visitor.page
    page.get_by_label("Which session starts next").select_option("lifo")
    _save(visitor)
    newer = visit(ADMIN)
    newer.go(f"/sessions/{queue[1]['id']}/")
    expect(newer.page.locator(".alert.state-notice")).to_contain_text("position 1 in the queue")
    page.get_by_label("Which session starts next").select_option("fifo")
    _save(visitor)
    expect(newer.page.locator(".alert.state-notice")).to_contain_text("position 2 in the queue")
    newer.go("/manage/queue/")
    wider = "(cards) => cards.filter((card) => card.scrollWidth > card.clientWidth).map((card) => card.innerText)"
    assert newer.page.locator("main .card").evaluate_all(wider) == []


@pytest.mark.ci
@pytest.mark.core
@pytest.mark.parametrize("theme", THEMES)
def test_a_wrong_rule_is_refused_at_its_field_in_words(visit: Visit, theme: str) -> None:
    visitor = _at_the_rules(visit, theme=theme)
    page = visitor.page
    page.get_by_label("Maximum queue time").fill("12")
    page.get_by_label("Creating a container takes at most").fill("0")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("such as 90s, 30m, 2h or 7d", exact=False).first).to_be_visible()
    expect(page.get_by_text("more than 0 is required")).to_be_visible()
    expect(page.get_by_label("Maximum queue time")).to_have_value("12")
    page.get_by_label("Maximum queue time").fill("30m")
    page.get_by_label("Creating a container takes at most").fill("2m")
    _save(visitor)
    expect(page.get_by_label("Maximum queue time")).to_have_value("30m")
    page.get_by_label("Maximum queue time").fill("0")
    _save(visitor)


def _at_the_rules(visit: Visit, **options: str) -> Visitor:
    """Return an administrator who has found the rules from the portal's own pages."""
    visitor = visit(ADMIN, **options)
    visitor.page.get_by_role("link", name="Administration").first.click()
    visitor.page.get_by_role("link", name="Resource groups").click()
    visitor.page.get_by_role("link", name="default", exact=True).click()
    expect(visitor.page.get_by_role("heading", name="default", exact=True)).to_be_visible()
    return visitor


def _save(visitor: Visitor) -> None:
    visitor.page.get_by_role("button", name="Save").click()
    expect(visitor.page.get_by_text("is saved; the next scheduler pass uses it")).to_be_visible()
    visitor.page.get_by_role("link", name="default", exact=True).click()
