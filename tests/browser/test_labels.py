"""Labels and a note, written at the launch, changed in the panel and clicked, by keyboard and on a phone."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.browser.people import ALICE
from tests.system.client import Client

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]
LONG = "x" * 128


def test_labels_are_changed_by_keyboard_and_lead_to_their_sessions(visit: Visit, alice: Client) -> None:
    visitor = visit(ALICE)
    page = visitor.page
    more = {"labels": {"experiment": "baseline", "long": LONG}, "note": f"Try 1\n{LONG}"}
    session = alice.launch("labelled", type="batch", startup_command="true", starts_at="2090-01-01T00:00:00Z", **more)
    visitor.go(f"/sessions/{session['id']}/")
    expect(page.get_by_text("Try 1")).to_be_visible()
    page.locator("#labels-button").press("Enter")
    box = page.get_by_role("dialog", name="Labels and note")
    expect(box.get_by_label("Labels")).to_be_focused()
    assert visitor.accessibility_faults() == []
    page.keyboard.press("Control+Home")
    page.keyboard.type("Wrong=1\n")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(box.get_by_text("'Wrong' is not a label")).to_be_visible()
    expect(box.get_by_label("Labels")).to_be_focused()
    box.get_by_label("Labels").fill(f"experiment=second try\nlong={LONG}")
    box.get_by_role("button", name="Save labels").press("Enter")
    expect(box).not_to_be_visible()
    chip = page.get_by_role("link", name="experiment=second try")
    expect(chip).to_be_visible()
    assert visitor.faults_in_the_dark_on_a_phone() == []
    assert visitor.overflow_on_a_phone() <= 0
    chip.press("Enter")
    expect(page).to_have_url(re.compile("label=experiment"))
    expect(page.locator("#session-list").get_by_role("link", name="labelled", exact=True)).to_be_visible()
    assert visitor.accessibility_faults() == []
    visitor.go("/sessions/new/")
    page.locator("summary", has_text="Labels and note").press("Enter")
    expect(page.locator("#id_labels")).to_be_visible()
    assert visitor.faults_in_the_dark_on_a_phone() == []
    alice.end(session["id"])
