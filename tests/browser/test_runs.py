"""A pipeline from its document to the repair of what failed, and what differs from the run before."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Campus, Visit
from tests.browser.people import ALICE
from tests.patience import patient

pytestmark = [pytest.mark.browser, pytest.mark.system, pytest.mark.ci]
TEXT = """\
kind: pipeline
name: nightly
defaults: {image: torch-2.4, resources: {cpu: 1, mem: 1g}}
steps:
  prepare: {startup_command: sleep 1}
  train:
    after: [prepare]
    matrix: {lr: [0.1, 0.01], seed: [1, 2, 3]}
    startup_command: sleep 1
  check: {after: {train: any}, startup_command: "%s"}
  report: {after: [check], startup_command: sleep 1}
"""


def test_a_pipeline_is_written_launched_repaired_and_compared(walk: Visit, campus: Campus) -> None:
    visitor = walk(ALICE)
    page = visitor.page
    shots = os.environ.get("BACKENDAI_TEST_SHOTS")

    def look(name: str) -> None:
        assert visitor.faults_in_the_dark_on_a_phone() == []
        if shots:
            for width, scheme in ((1280, "light"), (375, "light"), (375, "dark")):
                page.set_viewport_size({"width": width, "height": 900})
                page.emulate_media(color_scheme=scheme)
                page.screenshot(path=Path(shots, f"{name}-{width}-{scheme}.png"), full_page=True)
            page.set_viewport_size({"width": 1280, "height": 900})
            page.emulate_media(color_scheme="light")

    def launch(text: str) -> None:
        visitor.go("/runs/new/")
        page.get_by_role("textbox", name="Document").fill(text)
        page.get_by_role("button", name="Launch pipeline").click()

    visitor.go("/runs/")
    look("list-empty")
    launch(TEXT.replace("after: [check]", "after: [chek]") % "exit 3")
    expect(page.get_by_text("Unknown step 'chek': use check.")).to_be_visible()
    look("refused")
    launch(TEXT % "sleep 1")
    expect(page.get_by_role("heading", name="nightly", level=1)).to_be_visible()
    look("running")
    page.evaluate("document.getElementById('run-lines-0').mark = 'the same element'")
    expect(page.locator(".run-head")).to_contain_text("succeeded", timeout=patient(60_000), ignore_case=True)
    assert page.evaluate("document.getElementById('run-lines-0').mark") == "the same element"
    expect(page.locator("#run-board .run-graph .node.tone-good")).to_have_count(4)
    expect(page.locator("#run-board .run-graph .edge")).to_have_count(3)
    launch(TEXT % "exit 3")
    expect(page.locator(".run-head")).to_contain_text("failed", timeout=patient(60_000), ignore_case=True)
    visitor.reload()
    look("failed")
    page.get_by_role("link", name="Show failures").click()
    expect(page.get_by_role("heading", name="Failures")).to_be_visible()
    look("failures")
    page.go_back()
    page.get_by_role("link", name="Compare").click()
    expect(page.get_by_role("row", name="steps.check.startup_command sleep 1 exit 3")).to_be_visible()
    look("compare")
    page.go_back()
    page.get_by_role("button", name="Retry failed").click()
    expect(page.locator(".run-head")).to_contain_text(re.compile("waiting|running", re.IGNORECASE))
