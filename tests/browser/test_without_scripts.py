"""The pages where scripts are not allowed: everything but the terminal still works."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.browser.people import ALICE
from tests.system.client import Client

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]


def test_it_signs_in_launches_and_terminates(visit: Visit, alice: Client) -> None:
    page = visit(ALICE, scripts=False).page
    page.get_by_role("link", name="New session").click()
    page.get_by_role("radio", name=re.compile("^Custom")).check()
    page.get_by_label("CPU cores").fill("0.5")
    page.get_by_label("Memory", exact=True).fill("64m")
    page.get_by_label("Name optional").fill("by-hand")
    page.locator("summary", has_text="Advanced").click()
    page.get_by_label("Name of variable 2").fill("MODE")
    page.get_by_label("Value of variable 2").fill("plain")
    page.get_by_role("button", name="Start session").click()
    expect(page.get_by_role("heading", name="by-hand", level=1)).to_be_visible()
    expect(page.get_by_text("The terminal needs JavaScript.")).to_be_visible()
    expect(page.get_by_text("MODE=plain")).to_be_visible()
    alice.wait_until_running(page.url.split("/sessions/")[1].split("/")[0])
    page.reload()
    page.get_by_role("link", name="Terminate").click()
    page.get_by_role("button", name="Terminate").click()
    expect(page.get_by_text("by-hand is being ended.")).to_be_visible()
