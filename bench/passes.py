"""What a scheduler pass costs through the database: 10,000 pending sessions, 1,000 agents, four slots, 64 shapes.

bin/bench passes [--json] [--database sqlite|postgres ...] [--sessions N] [--agents N] [--sequence NAME]

PostgreSQL is a server of the benchmark's own, or the one that DATABASE_URL names (an empty database). Hints and browser
events go to a Redis of its own.
"""

from __future__ import annotations

from bench._command import command, show
from bench._in_process import on_each, run_in_process

SESSIONS, AGENTS = 10_000, 1_000
_START = "import django; django.setup(); from bench._passes import main; main()"


def main() -> None:
    """Measure and print."""
    parser = command("passes", __doc__, {"sessions": (SESSIONS, "that wait"), "agents": (AGENTS, "of the group")})
    parser.add_argument("--database", choices=("postgres", "sqlite"), nargs="+", default=["postgres", "sqlite"])
    parser.add_argument("--sequence", default="fifo", metavar="NAME", help="the group's session selection (fifo)")
    options = parser.parse_args()
    words = [options.sessions, options.agents, options.sequence]
    show(options, on_each(options.database, lambda database: run_in_process(_START, database, words, as_portal=True)))


if __name__ == "__main__":
    main()
