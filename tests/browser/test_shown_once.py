"""What is shown once: a reload looks at the page and does nothing again."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.browser.people import ALICE

pytestmark = [pytest.mark.browser, pytest.mark.system]


def test_a_reload_makes_no_second_token(visit: Visit) -> None:
    visitor = visit(ALICE)
    page = visitor.page
    visitor.go("/account/tokens/")
    page.get_by_label("Name", exact=True).fill("only-one")
    page.get_by_role("button", name="Create token").click()
    expect(page.locator(".token code")).to_be_visible()
    visitor.reload()
    expect(page.get_by_role("cell", name="only-one", exact=True)).to_have_count(1)
    expect(page.locator(".token code")).to_have_count(0)


def test_a_reload_leaves_a_new_secret_as_it_was_copied(visit: Visit) -> None:
    visitor = visit(ALICE)
    page = visitor.page
    visitor.go("/account/keys/")
    page.get_by_label("Name", exact=True).fill("rotated")
    page.get_by_role("button", name="Create key pair").click()
    secret = page.locator(".token code")
    first = secret.inner_text()
    row = page.get_by_role("row", name="rotated")
    row.locator("summary", has_text="New secret").press("Enter")  # by the keyboard: cards of news may lie there
    expect(row.get_by_text("Programs with the old secret stop working at once.")).to_be_visible()
    row.get_by_role("button", name="New secret").press("Enter")
    expect(secret).not_to_have_text(first)
    answer = visitor.reload()
    assert answer is not None
    assert (answer.status, answer.request.method) == (200, "GET")
    expect(secret).to_have_count(0)
