"""The terminal in a real page: much output as drawn by Chromium, and how long the page was blocked.

bin/bench terminal_page [--json] [--rounds N]
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from bench._bare_browser import BarePage, bare_page
from bench._command import command, show
from bench._engine import ensure_image
from bench._events import Events
from bench._portal import ADMIN, Portal, end_all, running_portal, say

_PROBE = Path(__file__).parent / "_terminal_probe.js"
_LINE = "x" * 78
_LINES = 50_000_000 // 79
_ALONE_BYTES = 10_000_000


def main() -> None:
    """Measure and print."""
    options = command("terminal_page", __doc__, {"rounds": (3, "times the output is shown")}).parse_args()
    show(options, run(options.rounds))


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
                return _output(page, rounds)
        finally:
            end_all(client, events, [session_id])
            events.close()


def _output(page: BarePage, rounds: int) -> dict[str, float]:
    _show(page, f"yes {_LINE} | head -n {_LINES} >lines; echo made", "made")
    rates, alone, pauses = [], [], []
    for _ in range(rounds):
        took = _show(page, "cat lines; echo 'all'-there", "all-there")
        rates.append(page.evaluate("probe.bytes") / took / 1e3)
        pauses.append(page.evaluate("probe.worstPause"))
        say(f"  output: {rates[-1]:.1f} MB/s, longest pause of the page {pauses[-1]:.0f} ms")
        took = page.evaluate(f"probe.alone({_ALONE_BYTES}, '{_LINE}\\r\\n')")
        alone.append(_ALONE_BYTES / took / 1e3)
    return {
        "page_mb_s": round(statistics.median(rates), 1),
        "page_worst_mb_s": round(min(rates), 1),
        "xterm_alone_mb_s": round(statistics.median(alone), 1),
        "page_blocked_ms_most": round(max(pauses)),
    }


def _show(page: BarePage, command: str, mark: str) -> float:
    """Type a command; returns the milliseconds until a line that begins with the mark has been drawn."""
    page.evaluate(f"probe.lookFor('{mark}')")
    page.type(command)
    page.evaluate("probe.start()")
    page.press("Enter")
    page.wait("probe.seenAt")
    return float(page.evaluate("probe.seenAt - probe.startedAt"))


@contextlib.contextmanager
def _terminal_page(portal: Portal, session_id: str) -> Iterator[BarePage]:
    with bare_page() as page:
        page.before_scripts(_PROBE.read_text())
        page.sign_in(portal.address, ADMIN, portal.password())
        page.go(f"http://127.0.0.1:{portal.port}/sessions/{session_id}/#terminal")
        page.wait("document.querySelector('#terminal-state').textContent === 'Connected'")
        page.evaluate("document.querySelector('#terminal-box textarea').focus()")
        time.sleep(1)
        yield page


if __name__ == "__main__":
    main()
