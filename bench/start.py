"""What the platform costs: the same work through it and without it, taking turns in one run; ratios first.

bin/bench start [--json] [--database sqlite|postgres] [--rounds N] [--only PART ...] [--cold]
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench import _terminal
from bench._command import command, show
from bench._engine import BareEngine, ensure_image
from bench._events import Events
from bench._portal import ROOT, Client, Portal, end_all, running_portal, say

_PARTS = ("one", "twenty", "burst", "terminal", "rest")
_SETTLE_SECONDS = 10.0
_CLIENTS, _BARE_THREADS, _WARM_UP = 4, 8, 2


def main() -> None:
    """Measure and print."""
    parser = command("start", __doc__, {"rounds": (25, "single starts on each side")}, parts=_PARTS, database=True)
    parser.add_argument("--cold", action="store_true", help="also install a fresh copy: needs a package index")
    options = parser.parse_args()
    figures = run(options.database, options.rounds, options.only)
    show(options, figures | ({"cold_s": _cold()} if options.cold else {}))


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
            figures |= _one_at_a_time(portal, bare, events, rounds)
        if "twenty" in parts:
            figures |= _at_once(portal, bare, events, count=20, rounds=max(1, rounds // 5))
        if "burst" in parts:
            figures |= _burst(portal, bare, events, count=100, rounds=max(1, rounds // 5))
        if "terminal" in parts:
            figures |= _terminal.measure(portal, events, keys=max(300, rounds * 24))
        events.close()
        if "rest" in parts:
            figures["warm_s"] = _warm(portal)
    return figures


def _one_at_a_time(portal: Portal, bare: BareEngine, events: Events, rounds: int) -> dict[str, float]:
    """Return medians of single starts; both sides take turns, and so does who goes first."""
    client, ours, theirs, accepted = portal.client(), [], [], []

    def through_platform() -> None:
        started_at = time.perf_counter()
        session_id = client.launch()
        accepted.append(time.perf_counter() - started_at)
        ours.append(events.time_of(session_id, "RUNNING") - started_at)
        end_all(client, events, [session_id])
        bare.settle()

    def through_engine() -> None:
        kernel, started_at, at = bare.start()
        theirs.append(at - started_at)
        bare.remove(kernel)
        bare.settle()

    for number in range(rounds + _WARM_UP):
        turns = [through_platform, through_engine]
        for turn in turns if number % 2 else reversed(turns):
            turn()
        if number % 5 == 4:
            say(f"  one at a time: {number + 1} of {rounds + _WARM_UP}")
    ours, theirs, accepted = ours[_WARM_UP:], theirs[_WARM_UP:], accepted[_WARM_UP:]
    platform, engine = statistics.median(ours), statistics.median(theirs)
    return {
        "ratio_p50": round(platform / engine, 3),
        "ratio_p95": round(_p95(ours) / _p95(theirs), 3),
        "overhead_ms_p50": round((platform - engine) * 1000, 1),
        "platform_ms_p50": round(platform * 1000, 1),
        "bare_ms_p50": round(engine * 1000, 1),
        "accept_ms_p50": round(statistics.median(accepted) * 1000, 1),
    }


def _at_once(portal: Portal, bare: BareEngine, events: Events, *, count: int, rounds: int) -> dict[str, float]:
    """Return how long each of ``count`` simultaneous starts takes from the common beginning, both sides."""
    p50s, lasts = [], []
    for number in range(rounds):
        ours, our_last = _launch_many(portal, events, count)
        bare.settle()
        theirs, their_last = bare.start_many(count, _BARE_THREADS)
        bare.settle()
        p50s.append(statistics.median(ours) / statistics.median(theirs))
        lasts.append(our_last / their_last)
        say(f"  {count} at once, round {number + 1} of {rounds}: platform {our_last:.2f} s, engine {their_last:.2f} s")
    return {
        f"ratio_{count}_p50": round(statistics.median(p50s), 3),
        f"ratio_{count}_last": round(statistics.median(lasts), 3),
    }


def _burst(portal: Portal, bare: BareEngine, events: Events, *, count: int, rounds: int) -> dict[str, float]:
    """Return the platform's sessions per second as a share of the engine's best rate, over 4 and 8 at a time.

    Each rate is the median of its rounds: the better of two in one round would be the luckier one. They take turns in
    going first, for the machine is not equally fast all the time.
    """
    rates: dict[str, list[float]] = {"engine, 4": [], "engine, 8": [], "platform": []}
    for number in range(rounds):
        for side in [*rates][number % 3 :] + [*rates][: number % 3]:
            if side == "platform":
                _, last = _launch_many(portal, events, count)
            else:
                _, last = bare.start_many(count, int(side[-1]))
            rates[side].append(count / last)
            bare.settle()
        told = ", ".join(f"{side} {some[-1]:.2f}/s" for side, some in rates.items())
        say(f"  burst of {count}, round {number + 1} of {rounds}: {told}")
    ours, *theirs = (statistics.median(rates[side]) for side in ("platform", "engine, 4", "engine, 8"))
    return {
        "burst_share": round(ours / max(theirs), 3),
        "burst_per_s": round(ours, 2),
        "bare_per_s": round(max(theirs), 2),
    }


def _launch_many(portal: Portal, events: Events, count: int) -> tuple[list[float], float]:
    """Launch that many at once; returns the seconds from the beginning to each RUNNING and to the last."""
    clients = [portal.client() for _ in range(_CLIENTS)]
    started_at = time.perf_counter()
    with ThreadPoolExecutor(_CLIENTS) as pool:
        made = list(pool.map(_launch_some, clients, [count // _CLIENTS] * _CLIENTS))
    session_ids = [session_id for some in made for session_id in some]
    seconds = [events.time_of(session_id, "RUNNING") - started_at for session_id in session_ids]
    end_all(clients[0], events, session_ids)
    return seconds, max(seconds)


def _launch_some(client: Client, count: int) -> list[str]:
    return [client.launch() for _ in range(count)]


def _p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


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
