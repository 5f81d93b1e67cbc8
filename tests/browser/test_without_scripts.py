"""The pages where scripts are not allowed: everything but the terminal still works."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.browser.people import ALICE
from tests.patience import until
from tests.system.client import Client

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]


@pytest.mark.core
def test_it_signs_in_launches_and_terminates(visit: Visit, alice: Client) -> None:
    visitor = visit(ALICE, scripts=False)
    page = visitor.page
    page.get_by_role("link", name="New session").click()
    page.get_by_role("radio", name=re.compile("^Custom")).check()
    page.get_by_label("CPU cores", exact=True).first.fill("0.5")  # further ones are those of roles
    page.get_by_label("Memory", exact=True).first.fill("64m")
    page.get_by_label("Name optional").fill("by-hand")
    page.get_by_label("Name of variable 2").fill("MODE")
    page.get_by_label("Value of variable 2").fill("plain")
    page.get_by_role("button", name="Launch", exact=True).click()
    page.get_by_role("link", name="by-hand", exact=True).click()
    expect(page.get_by_role("heading", name="by-hand", level=1)).to_be_visible()
    expect(page.get_by_text("The terminal needs JavaScript.")).to_be_visible()
    page.get_by_role("link", name="Show values").click()
    expect(page.get_by_role("heading", name="Environment variables", level=1)).to_be_visible()
    expect(page.locator("dt", has_text="MODE")).to_be_visible()
    expect(page.get_by_text("plain", exact=True)).to_be_visible()
    page.go_back()
    alice.wait_until_running(page.url.split("/sessions/")[1].split("/")[0])
    visitor.reload()
    page.get_by_role("link", name="Terminate").click()
    page.get_by_role("button", name="Terminate").click()
    expect(page.get_by_text("by-hand is being terminated.")).to_be_visible()


def test_it_asks_the_scheduler_on_a_page_of_its_own(visit: Visit, alice: Client) -> None:
    full = alice.wait_until_running(alice.launch("takes-all", resources={"cpu": 4, "mem": "64m"})["id"])
    session = alice.launch("comes-later", resources={"cpu": 2, "mem": "64m"})
    visitor = visit(ALICE, scripts=False)
    visitor.go(f"/sessions/{session['id']}/")
    link = visitor.page.get_by_role("link", name="Ask the scheduler")

    def is_offered() -> bool:
        return link.count() > 0 or (visitor.reload() is not None and link.count() > 0)

    until(is_offered, 30.0, "a pass has looked at it")
    link.click()
    expect(visitor.page.get_by_text("Not yet.")).to_be_visible()
    visitor.page.locator("#outlook-steps-of").click()
    expect(visitor.page.get_by_role("cell", name="insufficient-resources")).to_be_visible()
    alice.end(full["id"], session["id"])
