"""What the platform costs: the same work through it and without it, taking turns in one run; ratios first.

bin/bench start [--json] [--database sqlite|postgres] [--rounds N] [--only PART ...] [--cold]
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from bench import _starts, _terminal
from bench._engine import BareEngine, ensure_image
from bench._events import Events
from bench._portal import ROOT, Portal, running_portal, say

_PARTS = ("one", "twenty", "burst", "terminal", "rest")
_SETTLE_SECONDS = 10.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bin/bench start", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object of figures")
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--rounds", type=int, default=25, metavar="N", help="single starts on each side (25)")
    parser.add_argument("--only", choices=_PARTS, nargs="+", default=_PARTS, help="measure these parts alone")
    parser.add_argument("--cold", action="store_true", help="also install a fresh copy: needs a package index")
    options = parser.parse_args()
    figures = run(options.database, options.rounds, options.only)
    if options.cold:
        figures["cold_s"] = _cold()
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:24} {value}")


def run(database: str, rounds: int, parts: tuple[str, ...]) -> dict[str, object]:
    """Return the figures of these parts, on a platform of their own."""
    ensure_image()
    say(f"starting a platform on {database} ...")
    figures: dict[str, object] = {"database": database, "rounds": rounds}
    with running_portal(database) as portal:
        if "rest" in parts:
            time.sleep(_SETTLE_SECONDS)
            figures["rss_mb"], figures["pss_mb"] = _resident(portal)
        events = Events(portal.port, portal.token)
        bare = BareEngine(portal, portal.data.parent / "bare")
        if "one" in parts:
            figures |= _starts.one_at_a_time(portal, bare, events, rounds)
        if "twenty" in parts:
            figures |= _starts.at_once(portal, bare, events, count=20, rounds=max(1, rounds // 5))
        if "burst" in parts:
            figures |= _starts.burst(portal, bare, events, count=100, rounds=max(1, rounds // 5))
        if "terminal" in parts:
            figures |= _terminal.measure(portal, events, keys=max(300, rounds * 24))
        events.close()
        if "rest" in parts:
            figures["warm_s"] = _warm(portal)
    return figures


def _resident(portal: Portal) -> tuple[dict[str, float], dict[str, float]]:
    """Return each process's resident memory in MB, and their sum; once more with shared pages counted by share."""
    told = {name: one.memory_full_info() for name, one in sorted(portal.processes().items())}
    sizes = {name: round(one.rss / 1e6, 1) for name, one in told.items()}
    shares = {name: round(one.pss / 1e6, 1) for name, one in told.items()}
    return sizes | {"all": round(sum(sizes.values()), 1)}, shares | {"all": round(sum(shares.values()), 1)}


def _warm(portal: Portal) -> float:
    """Return the seconds from ``bin/up`` on a prepared folder to the first answer."""
    times = []
    for _ in range(3):
        portal.stop()
        times.append(portal.start())
    return round(statistics.median(times), 2)


def _cold() -> float:
    """Return the seconds from ``bin/up`` in a fresh copy, without its Python environment, to the first answer."""
    folder = Path(tempfile.mkdtemp(prefix="backendai-bench-cold-"))
    try:
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
        for name in filter(lambda name: name and (ROOT / name).exists(), names):
            (folder / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / "copy" / name, follow_symlinks=False)
        portal = Portal(folder / "data", {"BACKENDAI_AGENT_BACKEND": "simulated"}, root=folder / "copy")
        try:
            return round(portal.start(), 1)
        finally:
            portal.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
