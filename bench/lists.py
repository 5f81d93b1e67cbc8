"""What lists cost with a full house: 100,000 sessions, 2,000 users, 1,000 agents; and check-presets at 5,000 live ones.

bin/bench lists [--json] [--database sqlite|postgres ...] [--sessions N] [--live N] [--rounds N]

Requests go through the whole of Django in one process. PostgreSQL is a server of the benchmark's own, or the one that
DATABASE_URL names (an empty database). Beside each time stands the processor time of the process, in which SQLite works
too: on a busy machine it says more than the clock.
"""

from __future__ import annotations

from bench._command import command, show
from bench._in_process import on_each, run_in_process

SESSIONS, LIVE, USERS, AGENTS, ROUNDS = 100_000, 5_000, 2_000, 1_000, 40
_START = "import django; django.setup(); from bench._lists import main; main()"


def main() -> None:
    """Measure and print."""
    sizes = {"sessions": SESSIONS, "live": LIVE, "users": USERS, "agents": AGENTS}
    numbers = {name: (number, f"number of {name}") for name, number in sizes.items()}
    parser = command("lists", __doc__, numbers | {"rounds": (ROUNDS, "requests of each page")})
    parser.add_argument("--database", choices=("postgres", "sqlite"), nargs="+", default=["sqlite"])
    options = parser.parse_args()
    words = [options.sessions, options.live, options.users, options.agents, options.rounds]
    show(options, on_each(options.database, lambda database: run_in_process(_START, database, words)))


if __name__ == "__main__":
    main()
