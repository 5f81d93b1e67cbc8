"""How long a start takes through the platform and through the engine alone, one at a time and many at once."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor

from bench._engine import BareEngine
from bench._events import Events
from bench._portal import Client, Portal, end_all, say

_CLIENTS = 4
_BARE_THREADS = 8
_WARM_UP = 2


def one_at_a_time(portal: Portal, bare: BareEngine, events: Events, rounds: int) -> dict[str, float]:
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


def at_once(portal: Portal, bare: BareEngine, events: Events, *, count: int, rounds: int) -> dict[str, float]:
    """Return how long each of ``count`` simultaneous starts takes from the common beginning, both sides."""
    p50s, lasts = [], []
    for number in range(rounds):
        ours, our_last = launch_many(portal, events, count)
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


def burst(portal: Portal, bare: BareEngine, events: Events, *, count: int, rounds: int) -> dict[str, float]:
    """Return the platform's sessions per second as a share of the engine's best rate, over 4 and 8 at a time.

    Each rate is the median of its rounds: the better of two in one round would be the luckier one. They take turns in
    going first, for the machine is not equally fast all the time.
    """
    rates: dict[str, list[float]] = {"engine, 4": [], "engine, 8": [], "platform": []}
    for number in range(rounds):
        for side in [*rates][number % 3 :] + [*rates][: number % 3]:
            if side == "platform":
                _, last = launch_many(portal, events, count)
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


def launch_many(portal: Portal, events: Events, count: int) -> tuple[list[float], float]:
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
