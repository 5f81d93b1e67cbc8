"""An administrator writes a rule, a session's owner is warned in the open page and keeps it running with one click."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Route, expect

from tests.browser.conftest import Visit
from tests.browser.people import ADMIN, ALICE
from tests.browser.visitor import unfold, wait_until
from tests.patience import patient
from tests.system.client import Body, Client

pytestmark = [
    pytest.mark.browser,
    pytest.mark.docker,
    pytest.mark.system,
    pytest.mark.long,  # two minutes of waiting; tests/system/test_idle.py waits as long at each run
    pytest.mark.timeout(420),
]
WARNED_WITHIN_MS = patient(240_000)


@pytest.fixture
def session(alice: Client) -> Iterator[Body]:
    found = alice.wait_until_running(alice.launch("left-alone")["id"])
    yield found
    alice.end(found["id"])


def test_a_rule_warns_in_the_open_page_and_one_click_gives_more_time(visit: Visit, session: Body) -> None:
    admin = visit(ADMIN)
    form = admin.page
    admin.go("/manage/idle-checkers/")
    assert admin.faults_in_every_light() == []
    form.get_by_role("link", name="New idle checker").first.click()
    form.get_by_label("Name").fill("unused")
    form.get_by_label("After").fill("50s")
    form.get_by_label("Warning period").fill("40s")
    form.get_by_label("The whole site").check()
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_text("at least 1m is needed")).to_be_visible()
    assert admin.faults_in_every_light() == []
    form.get_by_label("After").fill("3m")
    form.get_by_label("Warning period").fill("90s")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("link", name="unused")).to_be_visible()

    owner = visit(ALICE)
    page = owner.page
    owner.go(f"/sessions/{session['id']}/")
    checks = page.locator("#idle-checks")
    expect(checks.get_by_text("Network idle timeout")).to_be_visible()
    checks.get_by_text("Network idle timeout").focus()
    checks.get_by_text("Network idle timeout").click()
    expect(checks.get_by_text("A program that runs unattended does not count.")).to_be_visible()
    checks.locator("details").first.evaluate("(one) => one.setAttribute('data-old', '')")
    with page.expect_request(f"**/sessions/{session['id']}/panel/", timeout=patient(45_000)):
        pass  # by itself
    expect(checks.locator("[data-old]")).to_have_count(0)
    expect(checks.get_by_text("A program that runs unattended does not count.")).to_be_visible()
    notice = page.locator("[id^=idle-notice-]")
    expect(notice).to_be_visible(timeout=WARNED_WITHIN_MS)
    owner.go("/")
    expect(page.locator(".idle-sign")).to_be_visible()
    card = page.locator(f"#note-{session['id']}")
    expect(card.locator("summary")).to_contain_text("idle, ends in")
    unfold(card)
    expect(card.get_by_role("button", name="Keep session running")).to_be_visible()
    owner.go(f"/sessions/{session['id']}/")
    expect(notice).to_be_visible()
    # A renewal of the panel while the answer is under way does not take away where that goes.
    held: list[Route] = []
    page.route("**/longer/**", lambda route: held.append(route))
    with page.expect_request("**/longer/**"):
        notice.get_by_role("button", name=re.compile("Keep session running 1h longer")).click()
    page.evaluate("htmx.trigger('#session-head', 'look-again')")
    wait_until(page, lambda: held, "it goes on its way")
    page.wait_for_timeout(1000)
    held[0].continue_()
    expect(notice).not_to_be_visible()
    expect(checks.get_by_text("Extended until at least")).to_be_visible()
    assert owner.accessibility_faults() == []
    assert f"/sessions/{session['id']}/" in page.url, "nobody was led away"

    admin.go("/manage/idle-checkers/")
    form.get_by_role("link", name="unused").click()
    form.get_by_role("link", name="Delete").click()
    form.get_by_role("button", name="Delete").click()
    expect(form.get_by_text("unused is deleted.")).to_be_visible()
