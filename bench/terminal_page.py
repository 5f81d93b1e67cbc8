"""The terminal in a real page: much output as drawn by Chromium, how long the page was blocked, and a flood cut short.

bin/bench terminal_page [--json] [--rounds N]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from bench._engine import ensure_image
from bench._events import Events
from bench._portal import ADMIN, Portal, end_all, running_portal, say

_CHROMIUM = "/usr/bin/chromium"
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
_PROBE = Path(__file__).parent / "_terminal_probe.js"
_SIZE = {"width": 1280, "height": 800}
_PATIENCE_SECONDS = 60.0
_LOOK_MS = 100
_LINE = "x" * 78
_LINES = 50_000_000 // 79
_ALONE_BYTES = 10_000_000
_FLOOD_MS = 2_000
_SILENCE_MS = 1_000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bin/bench terminal_page", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object of figures")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="times the output is shown (3)")
    options = parser.parse_args()
    figures = run(options.rounds)
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:24} {value}")


def run(rounds: int) -> dict[str, float]:
    """Return the figures, measured in one page on a platform of its own."""
    ensure_image()
    say("starting a platform ...")
    with running_portal("sqlite") as portal:
        events, client = Events(portal.port, portal.token), portal.client()
        session_id = client.launch()
        events.time_of(session_id, "RUNNING")
        try:
            with _terminal_page(portal, session_id) as page:
                return _output(page, rounds) | _after_interrupt(page)
        finally:
            end_all(client, events, [session_id])
            events.close()


def _output(page: Page, rounds: int) -> dict[str, float]:
    _show(page, f"yes {_LINE} | head -n {_LINES} >lines; echo made", "made")
    rates, alone, pauses = [], [], []
    for _ in range(rounds):
        took = _show(page, "cat lines; echo 'all'-there", "all-there")
        rates.append(page.evaluate("probe.bytes") / took / 1e3)
        pauses.append(page.evaluate("probe.worstPause"))
        say(f"  output: {rates[-1]:.1f} MB/s, longest pause of the page {pauses[-1]:.0f} ms")
        took = page.evaluate("([bytes, line]) => probe.alone(bytes, line)", [_ALONE_BYTES, f"{_LINE}\r\n"])
        alone.append(_ALONE_BYTES / took / 1e3)
    return {
        "page_mb_s": round(statistics.median(rates), 1),
        "page_worst_mb_s": round(min(rates), 1),
        "xterm_alone_mb_s": round(statistics.median(alone), 1),
        "page_blocked_ms_most": round(max(pauses)),
    }


def _after_interrupt(page: Page) -> dict[str, float]:
    """Return what still came after Ctrl-C was pressed in a flood, and how long it took to see the next command work."""
    page.keyboard.type("yes\n")
    page.wait_for_timeout(_FLOOD_MS)
    page.evaluate("probe.start()")
    page.keyboard.press("Control+C")
    answered = _show(page, "echo 'still'-here", "still-here", start=False)
    _wait(page, f"performance.now() - probe.lastBytesAt > {_SILENCE_MS}")
    left = page.evaluate("probe.bytes")
    say(f"  after Ctrl-C {left} bytes; the next command's output was seen {answered:.0f} ms after it")
    return {"page_after_interrupt_bytes": left, "page_interrupt_ms": round(answered)}


def _show(page: Page, command: str, mark: str, *, start: bool = True) -> float:
    """Type a command; returns the milliseconds until a line that begins with the mark has been drawn."""
    page.evaluate("(mark) => probe.lookFor(mark)", mark)
    if start:
        page.keyboard.type(command)
        page.evaluate("probe.start()")
        page.keyboard.press("Enter")
    else:
        page.keyboard.type(f"{command}\n")
    _wait(page, "probe.seenAt")
    return float(page.evaluate("probe.seenAt - probe.begun"))


def _wait(page: Page, condition: str) -> None:
    """Playwright's own waiting needs ``eval``, which the pages forbid."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not page.evaluate(condition):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {_PATIENCE_SECONDS} s in vain for {condition}")
        page.wait_for_timeout(_LOOK_MS)


@contextlib.contextmanager
def _terminal_page(portal: Portal, session_id: str) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=_ARGUMENTS)
        page = browser.new_page(viewport=_SIZE)  # type: ignore[arg-type]
        page.add_init_script(path=_PROBE)
        page.goto(f"http://127.0.0.1:{portal.port}/login/")
        page.get_by_label("E-mail address").fill(ADMIN)
        page.get_by_label("Password").fill(_password(portal))
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Sessions", level=1)).to_be_visible()
        page.goto(f"http://127.0.0.1:{portal.port}/sessions/{session_id}/#terminal")
        expect(page.locator("#terminal-state")).to_have_text("Connected")
        page.locator("#terminal-box textarea").focus()
        time.sleep(1)
        yield page
        browser.close()


def _password(portal: Portal) -> str:
    """Return the administrator's password, which the first start printed."""
    printed = re.search(r"^\s*Password\s+(\S+)", (portal.data.parent / "up.log").read_text(), re.MULTILINE)
    assert printed, "the first start printed no password"
    return printed[1]


if __name__ == "__main__":
    main()
