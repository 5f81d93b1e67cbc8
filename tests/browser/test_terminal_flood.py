"""Much output in the terminal: what is left out is what nobody could see, the page answers, and Ctrl-C ends it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visit
from tests.browser.people import ALICE
from tests.browser.visitor import Visitor, wait_until
from tests.system.client import Client

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system, pytest.mark.long]
_FLOOD = (Path(__file__).parent / "flood.js").read_text()
_RECORDER = Path(__file__).parent / "recorder.js"
_LINE = "the quick brown fox jumps over the lazy dog and then over another one of those"
# What is sent between two blocks of text, and lets not every line of the second leave the screen.
_STAYING = {
    "nothing": [],
    "a region that scrolls": [b"\x1b[5;9r"],
    "a region at the top": [b"\x1b[1;9r"],
    "a region at the bottom": [b"\x1b[5;24r"],
    "the other screen": [b"\x1b[?1049h"],
    "a long string": [b"\x1b]0;title"],
    "a string started_at by one character": ["\x90q".encode()],
    "a string started_at by a character in two halves": [b"\xc2", b"\x90q"],
    "half a character": ["漢".encode()[:2]],
    "line feeds alone": [b"x" * 30 + b"\n" * 5000],
}
_PATIENCE_SECONDS = 60.0
_MOST_AFTER_INTERRUPT = 3_000_000


@pytest.fixture(scope="module")
def running(alice: Client) -> Iterator[str]:
    """The address of a session with a bare shell, whose output comes as it is."""
    session = alice.wait_until_running(alice.launch("talkative", image="tiny")["id"])
    yield f"/sessions/{session['id']}/"
    alice.end(session["id"])


@pytest.fixture
def visitor(visit: Visit, running: str) -> Visitor:
    """Somebody before the terminal, of which everything is recorded."""
    visitor = visit(ALICE)
    visitor.page.add_init_script(path=_RECORDER)
    visitor.go(f"{running}#terminal")
    expect(visitor.page.locator("#terminal-state")).to_have_text("Connected")
    visitor.page.evaluate(_FLOOD)
    return visitor


def test_it_leaves_nothing_out_that_could_be_seen_whatever_is_printed(visitor: Visitor) -> None:
    left_out = 0
    for seed in range(10):
        result = visitor.page.evaluate("(seed) => flood.compareRandom(seed)", seed)
        assert not result["found"], f"seed {seed}: {result['found']}"
        left_out += max(0, result["leftOut"])
    assert left_out > 0


def test_it_reads_all_while_text_does_not_run_through_the_whole_screen(visitor: Visitor) -> None:
    for name, messages in _STAYING.items():
        result = visitor.page.evaluate("(before) => flood.compareAfter(before)", [list(one) for one in messages])
        assert not result["found"], f"{name}: {result['found']}"


def test_it_shows_a_real_flood_as_if_every_byte_had_been_read_and_answers_meanwhile(visitor: Visitor) -> None:
    page = visitor.page
    frames = page.evaluate("record.frames")
    visitor.type(f"yes '{_LINE}' | head -n 150000; echo the-$((6*7))-end")
    _wait_for(page, "the-42-end")
    assert page.evaluate("record.bytes") > 150_000 * len(_LINE)
    assert page.evaluate("record.frames") > frames
    assert page.evaluate("flood.compareWithAll(record.terminal, record.messages)") == ""


def test_it_takes_keys_while_output_flows(visitor: Visitor) -> None:
    visitor.type("while sleep 0.01; do echo tick; done &")
    _wait_for(visitor.page, "tick")
    visitor.type("echo; echo heard-$((6*7))")
    _wait_for(visitor.page, "heard-42")
    visitor.type("kill %1; echo; echo quiet-$((6*7))")
    _wait_for(visitor.page, "quiet-42")


def test_it_ends_a_flood_with_control_c(visitor: Visitor) -> None:
    page = visitor.page
    visitor.type(f"yes '{_LINE}'")
    _wait_for(page, _LINE)
    page.keyboard.press("Control+C")
    before = page.evaluate("record.bytes")
    page.keyboard.type("echo; echo still-$((6*7))\n")
    _wait_for(page, "still-42")
    assert page.evaluate("record.bytes") - before <= _MOST_AFTER_INTERRUPT
    assert page.evaluate("flood.compareWithAll(record.terminal, record.messages)") == ""


def _wait_for(page: Page, text: str) -> None:
    """Wait until a line of screen or scrollback begins so; Playwright's own waiting needs the forbidden ``eval``."""
    what = f"there was no line that begins with {text}"
    wait_until(page, lambda: page.evaluate("(text) => record.holds(text)", text), what, _PATIENCE_SECONDS)
