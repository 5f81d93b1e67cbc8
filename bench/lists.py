"""What lists cost with a full house: 100,000 sessions, 2,000 users, 1,000 agents; and check-presets at 5,000 live ones.

bin/bench lists [--json] [--database sqlite|postgres ...] [--sessions N] [--live N] [--rounds N]

Requests go through the whole of Django in one process. PostgreSQL is a server of the benchmark's own, or the one that
DATABASE_URL names (an empty database). Beside each time stands the processor time of the process, in which SQLite works
too: on a busy machine it says more than the clock.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from bench._in_process import run_in_process
from bench._portal import say

SESSIONS, LIVE, USERS, AGENTS, ROUNDS = 100_000, 5_000, 2_000, 1_000, 40
_START = "import django; django.setup(); from bench._lists import main; main()"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bin/bench lists", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object of figures")
    parser.add_argument("--database", choices=("postgres", "sqlite"), nargs="+", default=["sqlite"])
    for name, number in (("sessions", SESSIONS), ("live", LIVE), ("users", USERS), ("agents", AGENTS)):
        parser.add_argument(f"--{name}", type=int, default=number, metavar="N")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="requests of each page (40)")
    options = parser.parse_args()
    numbers = [options.sessions, options.live, options.users, options.agents, options.rounds]
    figures: dict[str, Any] = {}
    for database in options.database:
        say(f"lists on {database} ...")
        found = run_in_process(_START, database, numbers)
        figures |= found if database == options.database[0] else {f"{database}_{name}": v for name, v in found.items()}
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        for page, figure in value.items() if isinstance(value, dict) else [("", value)]:
            print(f"{name:24} {page:28} {figure}")


if __name__ == "__main__":
    main()
