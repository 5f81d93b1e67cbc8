"""From a document to a session with roles, in the browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Campus, Visit
from tests.browser.people import ALICE
from tests.browser.visitor import REVIEW

pytestmark = [pytest.mark.browser, pytest.mark.system]
TEXT = """\
params:
  lr: {type: number, default: 0.1, max: 1, title: Learning rate}
image: torch-2.4
resources: {cpu: 1, mem: 1g}
environ: {RUN: "lr-${{ params.lr }}"}
roles:
  worker: {count: 2, resources: {cpu: 1, mem: 512m}}
locked: [image]
"""


@pytest.mark.ci
@pytest.mark.core
def test_one_writes_a_template_starts_from_it_and_saves_the_session_as_another(walk: Visit, campus: Campus) -> None:
    visitor = walk(ALICE)
    page = visitor.page
    visitor.go("/templates/new/")
    page.get_by_label("Name", exact=True).fill("distributed")
    document = page.get_by_role("textbox", name="Document")
    document.fill(TEXT.replace("environ", "envrion"))
    page.get_by_role("button", name="Create template").click()
    expect(page.get_by_text("Line 5, column 1: A template has no key 'envrion': use environ.")).to_be_visible()
    assert visitor.faults_in_the_dark_on_a_phone() == []
    document.fill(TEXT)
    page.get_by_role("button", name="Create template").click()
    expect(page.get_by_role("heading", name="distributed", level=1)).to_be_visible()
    assert visitor.accessibility_faults(colours_only=True) == [], "the document can be read in the light, too"

    page.get_by_role("link", name="Start from template").click()
    page.get_by_label("Learning rate").fill("7")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("Use at most 1.")).to_be_visible()
    page.get_by_label("Learning rate").fill("0.5")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("row", name="environ.RUN lr-0.5 parameter lr")).to_be_visible()
    assert visitor.faults_in_the_dark_on_a_phone() == []
    page.get_by_role("button", name="Continue to the launcher").click()
    expect(page.get_by_role("heading", name=REVIEW, level=2)).to_be_visible()
    review = page.locator(".review")
    expect(review).to_contain_text("worker × 2")
    expect(review).to_contain_text("private/distributed@1")
    visitor.reload()
    expect(review).to_contain_text("private/distributed@1")  # the address keeps it
    session_id = visitor.launch()
    hosts = [kernel["hostname"] for kernel in campus.alice.session(session_id)["kernels"]]
    assert hosts == ["main1", "worker1", "worker2"]
    page.get_by_role("link", name="Save as template").click()
    assert "worker:" in page.get_by_role("textbox", name="Document").input_value()
    campus.alice.end(session_id)
