"""The cards of one's sessions."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.browser.people import ALICE
from tests.browser.visitor import unfold
from tests.patience import patient
from tests.system.client import Client

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]
STARTED_MS = patient(45_000)
ENDED_MS = patient(30_000)
# Somebody opens a card in the moment between its arrival and its first look, over a button that it covers.
OPENS_AT_ONCE = """() => {
  const covered = document.createElement("button");
  covered.id = "covered";
  covered.style = "position: fixed; inset: 0; width: 100%; height: 100%; opacity: 0; pointer-events: none";
  document.body.append(covered);
  const open = ({ target }) => {
    const badge = document.querySelector("[data-note] summary");
    if (target.id !== "note-cards" || !badge?.textContent.includes("Failed")) return;
    document.removeEventListener("htmx:afterSwap", open);
    badge.click();
    setTimeout(() => covered.remove(), 3000);
  };
  document.addEventListener("htmx:afterSwap", open);
}"""


def test_a_card_comes_with_the_session_follows_it_and_goes_when_all_is_well(visit: Visit, alice: Client) -> None:
    visitor = visit(ALICE)
    page = visitor.page
    visitor.go("/dashboard/")
    page.evaluate("window.stayed = true")
    page.keyboard.press("Tab")
    focused = page.evaluate("document.activeElement.outerHTML")
    fine = alice.launch("card-fine", image="tiny")
    card = page.locator(f"[data-note='{fine['id']}']")
    expect(card.get_by_role("status")).to_have_text("Running", timeout=STARTED_MS)
    unfold(card)
    for name in ("Apps of card-fine", "Terminal of card-fine", "Log of card-fine", "Terminate card-fine"):
        expect(card.get_by_role("link", name=name)).to_be_visible()
    assert not visitor.accessibility_faults()
    alice.terminate(fine["id"])
    expect(card).to_have_count(0, timeout=ENDED_MS)

    page.evaluate(OPENS_AT_ONCE)
    bad = alice.launch("card-bad", image="tiny", type="batch", startup_command="exit 3")
    card = page.locator(f"[data-note='{bad['id']}']")
    expect(card.locator("summary")).to_contain_text("Failed", timeout=STARTED_MS)
    expect(page.locator("#covered")).to_have_count(0)
    expect(card.get_by_role("link", name="Change and launch again")).to_have_attribute(
        "href", re.compile(f"like={bad['id']}$")
    )
    # A long reason can be scrolled, and so by the keyboard too.
    card.locator(".note-text").first.evaluate("(text) => text.append(' and why'.repeat(200))")
    assert not visitor.accessibility_faults()
    assert page.evaluate("window.stayed && document.activeElement.outerHTML") == focused
    expect(page.locator("#bell-mark")).to_contain_text("1")
    visitor.reload()
    expect(card).to_be_visible()
    unfold(card)
    card.get_by_role("button", name="Close the card of card-bad").click()
    expect(card).to_have_count(0)
    visitor.reload()
    page.get_by_role("link", name="Notifications").click()
    expect(page.get_by_role("dialog")).to_contain_text("card-bad")
    expect(card).to_have_count(0)
