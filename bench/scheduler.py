"""The scheduler from its pure decision to sessions that run: the figures that say whether it is fast enough.

bin/bench scheduler [--json] [--rounds N] [--sessions-per-second N]

It runs three benchmarks one after the other, which ``bin/bench`` also runs alone: ``decide`` (the decision itself),
``passes`` (through PostgreSQL) and ``fleet`` (simulated nodes that start and end sessions).
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from bench import decide, fleet, passes
from bench._portal import say


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bin/bench scheduler", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object of figures")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="how often each decision is measured (5)")
    parser.add_argument(
        "--sessions-per-second",
        type=float,
        default=160.0,
        metavar="N",
        help="sessions per second for the simulated agents (160)",
    )
    options = parser.parse_args()
    figures = run(options.rounds, options.sessions_per_second)
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:32} {value}")


def run(rounds: int, sessions_per_second: float) -> dict[str, Any]:
    """Return the figures of all three; ``nearly_full`` and the other cases of ``decide`` are in ``decide_cases_ms``."""
    say("decisions ...")
    decided = decide.run(rounds)
    cases = decided["decide_ms"]
    say("passes on postgres ...")
    passed = passes.run("postgres", passes.SESSIONS, passes.AGENTS, "fifo")
    say("simulated nodes ...")
    ran = fleet.run(fleet.options([f"--rate={sessions_per_second}"]))
    return {
        "decide_ms": {name: each["empty"] for name, each in cases.items()},
        "placements_per_s": passed["placements_per_s"],
        "idle_pass_ms": passed["idle_pass_ms"],
        "simulated_sessions_per_s": ran["simulated_sessions_per_s"],
        "pass_p99_ms": ran["pass_p99_ms"],
        "decide_cases_ms": cases,
        "growth_ms": decided["growth_ms"],
        "reference_ms": decided["reference_ms"],
        "passes": passed,
        "fleet": ran,
    }


if __name__ == "__main__":
    main()
