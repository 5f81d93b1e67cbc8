"""What runs of arrays and pipelines cost: accepting them, elements per second, and the way from one step to the next.

bin/bench runs [--json] [--database sqlite|postgres] [--elements N] [--chain N] [--only PART ...]

A platform of its own with one simulated node on which nothing takes time: what is left is the platform's own work. The
programs are ``sleep 0``. Processor time of the platform's processes stands beside the figures.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from typing import Any

from bench._command import command, show
from bench._portal import RESOURCES, Client, Portal, running_portal, say, wait_until

_PARTS = ("accept", "elements", "chain")
_REQUEST = {"image": "tiny", "resources": RESOURCES, "resource_group": "default"}
_RUN_SECONDS = 420.0


def main() -> None:
    """Measure and print."""
    numbers = {"elements": (1000, "elements of the array"), "chain": (100, "steps of the chain")}
    options = command("runs", __doc__, numbers, parts=_PARTS, database=True).parse_args()
    show(options, run(options))


def run(options: argparse.Namespace) -> dict[str, object]:
    """Return the figures of the chosen parts, on a platform of their own whose node has run something."""
    figures: dict[str, object] = {"database": options.database}
    say(f"starting a platform on {options.database} ...")
    told = {"BACKENDAI_AGENT_BACKEND": "simulated", "BACKENDAI_SIMULATED_TIME_SCALE": "0"}
    with running_portal(options.database, {**told, "BACKENDAI_AGENT_SLOTS": "cpu=256,mem=4t"}) as portal:
        client = portal.client()
        _finished(client, _array(client, 8))
        if "accept" in options.only:
            figures |= _accepting(client)
        if "elements" in options.only:
            figures |= _measured(portal, "elements", lambda: _elements(client, options.elements))
        if "chain" in options.only:
            figures |= _measured(portal, "chain", lambda: _chain(client, options.chain))
    return figures


def _accepting(client: Client) -> dict[str, float]:
    figures = {}
    for size in (1_000, 10_000):
        begun = time.perf_counter()
        run_id = _array(client, size, at_once=1, command="sleep 600")
        figures[f"accept_{size}_s"] = round(time.perf_counter() - begun, 3)
        client.ask("POST", f"/api/v1/runs/{run_id}/cancel/")
        _ended(client, run_id)
    return figures


def _elements(client: Client, size: int) -> dict[str, float]:
    begun = time.perf_counter()
    run_id = _array(client, size)
    _finished(client, run_id)
    seconds = time.perf_counter() - begun
    return {"elements_per_s": round(size / seconds, 1), "elements_s": round(seconds, 1)}


def _chain(client: Client, length: int) -> dict[str, float]:
    steps: dict[str, Any] = {"s0": {"startup_command": "sleep 0"}}
    for number in range(1, length):
        steps[f"s{number}"] = {"startup_command": "sleep 0", "after": [f"s{number - 1}"]}
    run_id = _pipeline(client, steps)
    _finished(client, run_id)
    sessions = _sessions(client, run_id)
    gaps = [_seconds(before["ended_at"], after["started_at"]) for before, after in pairwise(sessions)]
    return {
        "chain_gap_s_p50": round(statistics.median(gaps), 3),
        "chain_gap_s_p95": round(statistics.quantiles(gaps, n=20, method="inclusive")[-1], 3),
    }


def _measured(portal: Portal, name: str, work: Callable[[], dict[str, float]]) -> dict[str, object]:
    """Return the figures of the work, and how many seconds of the processor each process used meanwhile."""
    say(f"  {name} ...")
    processes = portal.processes()
    before = {one: sum(process.cpu_times()[:2]) for one, process in processes.items()}
    figures = work()
    used = {one: round(sum(process.cpu_times()[:2]) - before[one], 1) for one, process in processes.items()}
    told = {one: seconds for one, seconds in sorted(used.items(), key=lambda each: -each[1]) if seconds >= 0.1}
    return {**figures, f"{name}_cpu_s": told}


def _array(client: Client, size: int, *, at_once: int = 0, command: str = "sleep 0") -> str:
    document = {**_REQUEST, "startup_command": command, "array": size}
    return _launched(client, document | ({"at_once": at_once} if at_once else {}))


def _pipeline(client: Client, steps: dict[str, Any]) -> str:
    return _launched(client, {"kind": "pipeline", "version": 1, "defaults": _REQUEST, "steps": steps})


def _launched(client: Client, document: dict[str, Any]) -> str:
    return str(client.create("runs", {"document": document})["id"])


def _finished(client: Client, run_id: str) -> None:
    status = _ended(client, run_id)
    if status != "SUCCEEDED":
        raise RuntimeError(f"the run ended as {status}: {client.ask('GET', f'/api/v1/runs/{run_id}/failures/')}")


def _ended(client: Client, run_id: str) -> str:
    """Wait until nothing of the run is open; returns its status."""
    found: dict[str, Any] = {}

    def is_over() -> bool:
        found.update(client.ask("GET", f"/api/v1/runs/{run_id}/")[1])
        return bool(found["ended_at"])

    wait_until(is_over, _RUN_SECONDS, pause=0.25)
    return str(found["status"])


def _sessions(client: Client, run_id: str) -> list[dict[str, Any]]:
    tasks = client.ask("GET", f"/api/v1/runs/{run_id}/tasks/?page_size=1000")[1]["results"]
    return [client.ask("GET", f"/api/v1/sessions/{task['session']}/")[1] for task in tasks]


def _seconds(begin: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


if __name__ == "__main__":
    main()
