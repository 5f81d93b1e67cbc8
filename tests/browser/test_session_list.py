"""Choosing sessions in the list, and what stays as it is while the list changes under one's hands."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.browser.people import ALICE
from tests.system.client import Client

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]
TOO_MUCH = {"cpu": 4, "mem": "64m"}


@pytest.mark.core
def test_what_is_chosen_stays_chosen_while_new_sessions_appear_and_is_ended_together(
    visit: Visit, alice: Client
) -> None:
    full = alice.wait_until_running(alice.launch("holds-all", resources=TOO_MUCH)["id"])
    first, second = (alice.launch(name, resources=TOO_MUCH) for name in ("chosen-1", "chosen-2"))
    visitor = visit(ALICE)
    visitor.go("/?status=PENDING&sort=name")
    page, rows = visitor.page, visitor.page.get_by_role("region", name="Sessions", exact=True)
    for name in ("chosen-1", "chosen-2"):
        page.get_by_label(f"Select {name}").check()
    expect(page.get_by_text("2 selected")).to_be_visible()
    third = alice.launch("appears", resources=TOO_MUCH)
    expect(rows.get_by_role("link", name="appears", exact=True)).to_be_visible()
    expect(page.get_by_text("2 selected")).to_be_visible()
    expect(page.get_by_label("Select appears")).not_to_be_checked()
    assert visitor.accessibility_faults() == []
    page.get_by_role("button", name="Terminate the selected…").click()
    expect(page.get_by_role("heading", name="Terminate 2 sessions?")).to_be_visible()
    page.get_by_role("button", name="Terminate sessions", exact=True).click()
    expect(page.get_by_text("2 sessions were cancelled before they ran.")).to_be_visible()
    assert page.url.endswith("/?status=PENDING&sort=name")
    expect(rows.get_by_role("link", name="chosen-1", exact=True)).to_have_count(0)
    assert {alice.session(one["id"])["status"] for one in (first, second)} == {"CANCELLED"}
    alice.end(*[one["id"] for one in (full, third)])
