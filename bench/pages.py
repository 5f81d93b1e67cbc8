"""What the launcher costs: page and preview on the server, the first load in Chromium, and how soon a page hears news.

bin/bench pages [--json] [--database sqlite|postgres] [--agents N] [--pending N] [--rounds N] [--only server|browser]

launcher_ms_p95 and preview_ms_p95 go through all of Django in one process, the preview with all agents in one group,
queued_preview_ms_p95 behind --pending further sessions of it;
first_load_kb and lcp_ms are a page without a cache on a platform of the benchmark's own; event_ms_p95 is the time from
a change of status, as the session has it, until an open page hears of it while 199 sockets of somebody else are open.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from bench._bare_browser import BarePage, bare_page
from bench._command import command, show
from bench._events import Events
from bench._in_process import run_in_process
from bench._portal import ADMIN, Client, Portal, running_portal, say

GOALS = {
    "launcher_ms_p95": 100,
    "first_load_kb": 250,
    "lcp_ms": 1000,
    "preview_ms_p95": 100,
    "queued_preview_ms_p95": 100,
    "event_ms_p95": 200,
}
AGENTS, PENDING, ROUNDS, LOADS, CHANGES, OTHER_SOCKETS = 1_000, 10_000, 40, 7, 40, 199
_START = "import django; django.setup(); from bench._pages import main; main()"
_HEAR = """
  window.heard = [];
  const Plain = WebSocket;
  window.WebSocket = class extends Plain {
    constructor(...given) {
      super(...given);
      this.addEventListener("message", ({ data }) => {
        const said = JSON.parse(data);
        if (said.type === "session") heard.push([said.id, said.status, Date.now()]);
      });
    }
  };
"""
_LARGEST = """new Promise((resolve) => new PerformanceObserver((list) => resolve(list.getEntries().at(-1).startTime))
  .observe({ type: "largest-contentful-paint", buffered: true }))"""
_LOADED = """[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
  .map((each) => [new URL(each.name).pathname, each.transferSize])"""


def main() -> None:
    """Measure and print."""
    numbers = {
        "agents": (AGENTS, "agents of the group"),
        "pending": (PENDING, "sessions that wait for a whole agent"),
        "rounds": (ROUNDS, "requests of each page"),
    }
    options = command("pages", __doc__, numbers, parts=("server", "browser"), database=True).parse_args()
    figures: dict[str, Any] = {"database": options.database}
    if "server" in options.only:
        say("the server's side ...")
        figures |= run_in_process(_START, options.database, [options.agents, options.pending, options.rounds])
    if "browser" in options.only:
        say("starting a platform ...")
        figures |= in_browser(options.database)
    show(options, figures, GOALS)


def in_browser(database: str) -> dict[str, float]:
    """Return what the first load costs and how soon an open page hears of a change."""
    with running_portal(database) as portal, bare_page() as page:
        page.before_scripts(_HEAR)
        page.sign_in(portal.address, ADMIN, portal.password())
        found = _first_load(page, f"{portal.address}/sessions/new/")
        page.go(portal.address + "/")
        page.wait("document.querySelector('#live-mark')?.textContent === 'Live'")
        with _others(portal):
            return found | _events(page, portal.client())


def _first_load(page: BarePage, address: str) -> dict[str, float]:
    page.without_cache()
    paints = []
    for _ in range(LOADS):
        page.go(address)
        time.sleep(1)  # what htmx asks for when the page is there counts too
        paints.append(page.evaluate(_LARGEST))
    sizes = page.evaluate(_LOADED)
    for name, size in sorted(sizes, key=lambda each: -each[1])[:8]:
        say(f"  {size / 1000:8.1f} kB  {name}")
    return {
        "first_load_kb": round(sum(size for _, size in sizes) / 1000, 1),
        "first_load_requests": len(sizes),
        "lcp_ms": round(statistics.median(paints)),
        "lcp_ms_most": round(max(paints)),
    }


@contextlib.contextmanager
def _others(portal: Portal) -> Iterator[None]:
    (token,) = portal.people(1, strangers=True)
    sockets = [Events(portal.port, token) for _ in range(OTHER_SOCKETS)]
    try:
        yield
    finally:
        for socket in sockets:
            socket.close()


def _events(page: BarePage, client: Client) -> dict[str, float]:
    """Return how long after a change of status the page heard of it: of sessions that come to wait, and are ended."""
    later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    wishes = {"type": "batch", "startup_command": "true", "starts_at": later, "resources": {"cpu": "1"}}
    waits = []
    for _ in range(CHANGES // 2):
        session_id = client.launch(**wishes)
        client.end(session_id)
        page.wait(f"heard.some(([id, status]) => id === '{session_id}' && status === 'CANCELLED')")
        after = client.ask("GET", f"/api/v1/sessions/{session_id}/")[1]
        for status, at in (("PENDING", after["created_at"]), ("CANCELLED", after["ended_at"])):
            seen = page.evaluate(f"heard.find(([id, status]) => id === '{session_id}' && status === '{status}')?.[2]")
            if seen is not None:  # two changes at once may be told as one
                waits.append(seen - datetime.fromisoformat(at).timestamp() * 1000)
    return {
        "event_ms_p50": round(statistics.median(waits), 1),
        "event_ms_p95": round(sorted(waits)[int(0.95 * len(waits))], 1),
        "event_changes": len(waits),
    }


if __name__ == "__main__":
    main()
