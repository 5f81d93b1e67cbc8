"""A session in the browser, from the form to its log after the end."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visit
from tests.browser.people import ALICE
from tests.browser.visitor import RESOURCES, Visitor
from tests.patience import patient
from tests.system.client import Client

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]
STARTED_MS = patient(45_000)
ENDED_MS = patient(30_000)


@pytest.fixture(scope="module")
def running(alice: Client) -> Iterator[str]:
    """The address of a session that runs."""
    session = alice.wait_until_running(alice.launch("long-lived", image="shell")["id"])
    yield f"/sessions/{session['id']}/"
    alice.end(session["id"])


@pytest.mark.core
def test_it_takes_a_session_from_the_form_to_its_end(visit: Visit, alice: Client) -> None:
    visitor = visit(ALICE)
    page = visitor.page
    free = _free_cores(page)
    page.get_by_role("link", name="New session").click()
    page.get_by_label("Name optional").fill("first-try")
    visitor.step(RESOURCES)
    page.get_by_role("radio", name=re.compile("^Shell")).check()
    page.get_by_label("CPU cores", exact=True).fill("0.5")
    page.get_by_label("Memory", exact=True).fill("64m")
    expect(page.get_by_role("radio", name=re.compile("^Custom"))).to_be_checked()
    visitor.launch("#terminal")
    expect(page.get_by_role("heading", name="first-try", level=1)).to_be_visible()

    page.evaluate("window.stayed = true")
    expect(visitor.status).to_have_text("Running", timeout=STARTED_MS)
    visitor.type("echo $((6*7))")
    expect(visitor.screen).to_contain_text(re.compile(r"\b42\b"))

    page.get_by_role("button", name="Terminate").or_(page.get_by_role("link", name="Terminate")).first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Its kernels will be deleted")
    assert page.evaluate("window.stayed")
    dialog.get_by_role("button", name="Terminate").click()
    expect(visitor.status).to_have_text("Terminated", timeout=ENDED_MS)
    page.get_by_role("tab", name="Log").click()
    expect(page.locator("#log-rows")).to_contain_text("Session first-try on main1")
    visitor.go("/")
    expect(page.locator("#resources")).to_contain_text(f"{free} free of 4")


def test_it_renews_the_list_while_one_looks_at_it(visit: Visit, alice: Client) -> None:
    visitor = visit(ALICE)
    page = visitor.page
    expect(page.locator("#live-mark")).to_have_text("Live")
    page.evaluate("window.stayed = true")
    session = alice.launch("seen-from-afar", image="tiny")
    row = page.locator(f"[data-session='{session['id']}']")
    expect(row.locator(".status").first).to_have_text("Running", timeout=STARTED_MS)
    alice.terminate(session["id"])
    expect(row.locator(".status").first).to_have_text("Terminated", timeout=ENDED_MS)
    expect(row).to_have_count(0, timeout=ENDED_MS)
    assert page.evaluate("window.stayed")


@pytest.mark.core
def test_it_finds_the_same_shell_with_its_scrollback_after_a_reload(visit: Visit, running: str) -> None:
    visitor = visit(ALICE)
    visitor.go(f"{running}#terminal")
    visitor.type("clear; mark=kept-by-tmux; for n in $(seq 200); do echo line-$n.; done")
    expect(visitor.screen).to_contain_text("line-200.")
    expect(visitor.screen).not_to_contain_text("line-150.")
    visitor.reload()
    visitor.type("echo $mark")
    expect(visitor.screen).to_contain_text("kept-by-tmux")
    _scroll_up_to(visitor, "line-150.")
    visitor.page.keyboard.press("q")
    expect(visitor.screen).to_contain_text("kept-by-tmux")  # back at the prompt, for the next one in this shell


def test_words_far_above_are_found_in_what_the_shell_has_kept(visit: Visit, running: str) -> None:
    visitor = visit(ALICE)
    page = visitor.page
    visitor.go(f"{running}#terminal")
    visitor.type("clear; echo a-$((6*7))-needle; for n in $(seq 900); do echo hay-$n.; done; echo a-$((6*7))-needle")
    visitor.type("for n in $(seq 900); do echo straw-$n.; done")
    expect(visitor.screen).to_contain_text("straw-900.")
    page.keyboard.press("Control+Shift+F")
    words = page.get_by_label("Find in the terminal", exact=True).and_(page.locator("input"))
    expect(words).to_be_focused()
    words.fill("a-42-needle")
    words.press("Enter")
    expect(visitor.screen).to_contain_text("hay-900.")
    words.press("Enter")
    expect(visitor.screen).to_contain_text("hay-1.")
    page.get_by_role("button", name="Next", exact=True).click()
    expect(visitor.screen).to_contain_text("hay-900.")
    words.press("Escape")
    expect(visitor.screen).to_contain_text("straw-900.")
    visitor.type("echo back-$((6*7))")
    expect(visitor.screen).to_contain_text("back-42")


def test_it_tells_the_shell_the_size_of_the_window(visit: Visit, running: str) -> None:
    visitor = visit(ALICE)
    visitor.go(f"{running}#terminal")
    visitor.type("while clear; do echo columns: $(stty size | cut -d' ' -f2).; sleep 0.5; done")
    expect(visitor.screen).to_contain_text(re.compile(r"columns: 1\d\d\."))
    visitor.page.set_viewport_size({"width": 700, "height": 800})
    expect(visitor.screen).to_contain_text(re.compile(r"columns: \d\d\."))
    visitor.page.keyboard.press("Control+C")


@pytest.mark.core
def test_it_reads_and_downloads_the_log(visit: Visit, running: str) -> None:
    visitor = visit(ALICE)
    page = visitor.page
    visitor.go(running)
    page.get_by_role("tab", name="Log").click()
    expect(page.locator("#log-rows")).to_contain_text("Session long-lived on main1")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == "long-lived-main1.txt"
    assert "Session long-lived on main1" in download.value.path().read_text()


def test_it_keeps_the_form_when_it_tells_what_an_image_leaves_out(visit: Visit, running: str) -> None:
    visitor = visit(ALICE)
    visitor.go(f"{running}#terminal")
    visitor.type("head -c 500000 /dev/zero > kept-nowhere; clear; echo written-.")
    expect(visitor.screen).to_contain_text("written-.")
    visitor.go(running)
    visitor.page.get_by_role("link", name="Save as image").click()
    box = visitor.page.get_by_role("dialog", name="Save the session as an image")
    expect(box.get_by_text("Files in your home folder")).to_be_visible()
    box.get_by_label("Name of the image").fill("abc")
    box.get_by_role("button", name="Save as image").click()
    expect(box.get_by_text("Use at least 4 characters")).to_be_visible()


def _free_cores(page: Page) -> str:
    found = re.search(r"CPU\s+([\d.]+) free", page.locator("#resources").inner_text())
    assert found
    return found[1]


def _scroll_up_to(visitor: Visitor, text: str) -> None:
    place = visitor.screen.bounding_box()
    assert place
    visitor.page.mouse.move(place["x"] + 100, place["y"] + 100)
    for _ in range(40):
        visitor.page.mouse.wheel(0, -300)
        if text in visitor.screen.inner_text():
            break
        visitor.page.wait_for_timeout(50)
    expect(visitor.screen).to_contain_text(text)
    seen = None
    while seen != (seen := visitor.screen.inner_text()):  # turns of the wheel may still be on their way
        visitor.page.wait_for_timeout(1000)
