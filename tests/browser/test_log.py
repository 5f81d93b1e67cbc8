"""The viewer of a session's log."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.browser.people import ALICE
from tests.system.client import Client

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]
LINES = 20_000
PROGRAM = (
    f"seq {LINES} | sed 's/$/ of a long log/'; "
    r"printf 'odd \377 \033[31m<script>alert(1)</script>\033[0m \342\200\256 \033]0;title\007bytes\n'"
)


def test_it_keeps_a_long_log_light_findable_and_as_text(visit: Visit, alice: Client) -> None:
    job = alice.launch("noisy", image="tiny", type="batch", startup_command=PROGRAM)
    alice.wait_for(job["id"], "TERMINATED")
    visitor = visit(ALICE)
    page, rows = visitor.page, visitor.page.locator("#log-rows")
    visitor.go(f"/sessions/{job['id']}/#log")
    expect(page.locator("#log-state")).to_have_text("Complete")
    expect(rows).to_contain_text("odd \ufffd <script>alert(1)</script> \u27e8U+202E\u27e9 bytes")
    expect(rows.locator("script")).to_have_count(0)
    expect(rows.locator(".ink-red")).to_have_text("<script>alert(1)</script>")
    expect(rows.locator(".log-line").last).to_have_attribute("data-number", str(LINES + 1))
    assert rows.locator(".log-line").count() < 200

    page.get_by_role("searchbox", name="Find in the log").fill("77 OF A LONG")
    found = page.locator("#log-found")
    expect(found).to_have_text(f"0 of {LINES // 100}")
    page.get_by_role("button", name="Previous").click()
    expect(found).to_have_text(re.compile("^200 of 200$"))
    expect(rows.locator("mark.is-current")).to_be_in_viewport()
    expect(page.get_by_label("Follow")).not_to_be_checked()
    assert not visitor.accessibility_faults()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == "noisy-main1.txt"
    assert len(download.value.path().read_bytes().splitlines()) == LINES + 1
