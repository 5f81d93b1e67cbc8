"""Choosing a version, and launching again what was launched, in the browser."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.browser.people import ALICE
from tests.browser.visitor import RESOURCES, REVIEW, run_on
from tests.system.client import Client
from tests.system.platform import Platform

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]


@pytest.fixture
def versions(platform: Platform, alice: Client) -> Iterator[None]:
    """More environments than fit on cards, one of them in two versions; ends what Alice has launched."""
    run_on(platform, "make_versions")
    yield
    alice.end(*[session["id"] for session in alice.sessions()])
    run_on(platform, "drop_versions")


@pytest.mark.usefixtures("versions")
def test_one_finds_a_version_and_launches_it_again_under_another_name(visit: Visit) -> None:
    visitor = visit(ALICE)
    page = visitor.page
    visitor.go("/sessions/new/")
    page.get_by_label("Name optional").fill("first-run")
    visitor.step(RESOURCES)
    search = page.get_by_role("searchbox", name="Search images")
    search.fill("tensor cuda")
    expect(page.get_by_role("status").filter(has_text="1 found")).to_be_visible()
    search.press("Enter")
    version = page.get_by_role("combobox", name="Version")
    expect(version).to_have_value("tensorflow-2.15-cuda12")
    version.select_option("tensorflow-2.9")
    with page.expect_response("**/sessions/new/environments/"):
        page.locator("[name=resource_group]").dispatch_event("change")
    expect(page.get_by_role("status").filter(has_text="1 found")).to_be_visible()
    expect(search).to_have_value("tensor cuda")
    expect(version).to_have_value("tensorflow-2.9")
    assert visitor.accessibility_faults() == []
    page.get_by_label("CPU cores", exact=True).fill("2")
    page.get_by_label("Name of variable 1").fill("API_KEY")
    page.get_by_label("Value of variable 1").fill("s3cret")
    visitor.launch()

    visitor.go("/sessions/new/")
    page.get_by_role("link", name="Recent history").click()
    box = page.get_by_role("dialog", name="Recent history")
    expect(box).to_contain_text("2 CPU")
    box.get_by_role("button", name="Pin first-run").click()
    expect(box.get_by_role("button", name="Pin first-run")).to_have_attribute("aria-pressed", "true")
    expect(box.get_by_role("button", name="Pin first-run")).to_be_focused()
    pencil = box.locator(".recent-rename summary").first
    before = pencil.bounding_box()
    box.get_by_text("Rename first-run").click(force=True)
    name = box.get_by_role("textbox", name="New name of first-run")
    expect(name).to_be_focused()
    after, bin_of = pencil.bounding_box(), box.get_by_role("button", name="Delete first-run from the history")
    beside, field = bin_of.bounding_box(), name.bounding_box()
    assert before and after and beside and field
    assert before["x"] == after["x"] < beside["x"] and beside["y"] < field["y"], "the columns stay, the name is below"
    name.fill("-not-a-name")
    name.press("Enter")
    expect(box.get_by_role("alert")).to_contain_text("Begin with a letter")
    name.fill("again")
    name.press("Enter")
    expect(box.get_by_role("link", name="again")).to_be_visible()
    assert visitor.accessibility_faults() == []
    assert visitor.overflow_on_a_phone() <= 0
    box.get_by_role("link", name="again").click()
    expect(page.get_by_role("heading", name=REVIEW, level=2)).to_be_visible()
    card = page.get_by_role("region", name="Image", exact=True).locator("visible=true").last
    expect(card).to_contain_text(re.compile("tensorflow.*2.9"))
    expect(page.get_by_role("button", name="Launch", exact=True)).to_be_disabled()
    expect(card).to_contain_text("API_KEY has no value.")
    visitor.step(RESOURCES)
    expect(page.get_by_label("Name of variable 1")).to_have_accessible_description("API_KEY has no value.")
    page.get_by_label("Value of variable 1").fill("another")
    visitor.launch()
    expect(page.get_by_role("heading", name="again", level=1)).to_be_visible()
