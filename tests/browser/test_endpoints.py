"""An endpoint from the wizard to its first answers, in a browser, with real replicas."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chromium import Chromium
from tests.browser.people import ADMIN
from tests.browser.visitor import Visitor, run_on
from tests.patience import patient
from tests.system.platform import Platform
from tests.system.served import SERVER

pytestmark = [pytest.mark.browser, pytest.mark.system, pytest.mark.ci]
READY_MS = patient(90_000)
COMMAND = "cd /tmp\nexec python3 -c '{source}'"  # of two lines, as people type it


def test_the_wizard_creates_an_endpoint_that_answers_in_the_page_and_draws_its_plots(
    chromium: Chromium, tmp_path: Path
) -> None:
    slots = {"BACKENDAI_AGENT_NATIVE_SERVING": "yes", "BACKENDAI_AGENT_SLOTS": "cpu=4,mem=4g"}
    with Platform(tmp_path, backend="process", extra=slots) as platform:
        run_on(platform, "make_administrator")
        visitor = Visitor(chromium, platform.url).sign_in(ADMIN)
        page = visitor.page
        visitor.go("/endpoints/")
        page.locator(".page-head").get_by_role("link", name="New endpoint").click()
        _fill_in(page)
        page.get_by_role("button", name="Check placement").last.click()
        expect(page.get_by_text("2 of at most 2 replicas find room now.")).to_be_visible()
        faults = _look(visitor, tmp_path / "wizard")
        page.get_by_role("button", name="Create endpoint").click()
        expect(page.get_by_role("heading", name="chat", level=1)).to_be_visible()
        expect(page.get_by_text("2 of 2 replicas are ready")).to_be_visible(timeout=READY_MS)
        _wait_in_vain(page)
        _ask(page)
        columns = page.locator(".endpoint-plots figure").first.locator("rect.endpoint-column[height]:not([height='0'])")
        expect(columns.first).to_be_attached()
        expect(page.locator(".endpoint-plots rect.endpoint-mark").first).to_be_attached()
        faults += _look(visitor, tmp_path / "detail")
        visitor.go("/endpoints/")
        expect(page.get_by_role("row", name="chat")).to_contain_text("2 of 2")
        faults += _look(visitor, tmp_path / "list")
        page.get_by_role("link", name="chat").click()
        faults += _stop(visitor, tmp_path / "question")
        assert faults == []
        visitor.go("/endpoints/")
        _delete(visitor)
        visitor.leave()


def _fill_in(page: Page) -> None:
    page.get_by_label("Name", exact=True).fill("chat")
    page.get_by_label("Image").select_option("python")
    page.get_by_label("Command").fill(COMMAND.format(source=SERVER.read_text().replace("'", "'\\''")))
    page.get_by_label("CPU cores").fill("0.5")
    page.get_by_label("Memory").fill("128m")
    page.get_by_label("Minimum replicas").fill("2")
    page.get_by_label("Maximum replicas").fill("2")


def _wait_in_vain(page: Page) -> None:
    """Send a request that nothing answers, and stop it: no empty box stands for its answer."""
    page.route("**/v1/chat/completions", lambda _route: None)
    page.get_by_role("button", name="Send request").click()
    expect(page.locator("[data-call-status]")).to_have_text("Sending…")
    expect(page.locator("[data-call-answer]")).to_be_hidden()
    page.get_by_role("button", name="Stop request").click()
    expect(page.locator("[data-call-status]")).to_have_text("Stopped.")
    page.unroute("**/v1/chat/completions")


def _ask(page: Page) -> None:
    """Create a token and send requests from the page: the answers come word by word."""
    tokens = page.locator("section[aria-labelledby=tokens]")
    tokens.get_by_label("Name").fill("page")
    tokens.get_by_role("button", name="Create token").click()
    for _ in range(3):
        page.get_by_role("button", name="Send request").click()
        expect(page.locator("[data-call-answer]")).to_contain_text("one two three four")
        expect(page.locator("[data-call-status]")).to_contain_text("Status 200")
    first, whole = (int(part.partition(" ms")[0].split()[-1]) for part in _times(page))
    assert first < whole, "the answer came as a whole"


def _stop(visitor: Visitor, path: Path) -> list[str]:
    """Stop the endpoint after the question; return what is wrong with the page while it asks."""
    page, now = visitor.page, visitor.page.locator(".endpoint-now")
    page.get_by_role("button", name="Stop endpoint…").click()
    question = page.get_by_role("dialog", name="Stop the endpoint?")
    expect(question).to_contain_text("No request is open.")
    faults = _look(visitor, path)
    question.get_by_role("button", name="Stop endpoint").click()
    expect(now).to_contain_text("The endpoint is stopped: it has no replicas.", timeout=READY_MS)
    expect(now).not_to_contain_text("ready")
    return faults


def _times(page: Page) -> list[str]:
    return str(page.locator("[data-call-status]").inner_text()).split(", ")


def _look(visitor: Visitor, path: Path) -> list[str]:
    """Keep pictures of the page, and return what is wrong with it in every light."""
    visitor.page.screenshot(path=path.with_suffix(".png"), full_page=True)
    with visitor.dark(), visitor.on_a_phone():
        visitor.page.screenshot(path=path.with_name(f"{path.name}-phone.png"), full_page=True)
    return visitor.faults_in_every_light()


def _delete(visitor: Visitor) -> None:
    visitor.page.get_by_role("link", name="chat").click()
    visitor.page.get_by_text("Delete endpoint…").click()
    visitor.page.get_by_role("button", name="Delete endpoint", exact=True).click()
    visitor.page.wait_for_url("**/endpoints/")
