"""What a scheduler pass costs through the database: 10,000 pending sessions, 1,000 agents, four slots, 64 shapes.

bin/bench passes [--json] [--database sqlite|postgres ...] [--sessions N] [--agents N] [--sequence NAME]

PostgreSQL is a server of the benchmark's own, or the one that DATABASE_URL names (an empty database). Hints and browser
events go to a Redis of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backendai.ops.run.valkey import find_server
from bench._portal import ROOT, free_port, own_postgres, say, wait_until

SESSIONS, AGENTS = 10_000, 1_000
_START = "import django; django.setup(); from bench._passes import main; main()"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bin/bench passes", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object of figures")
    parser.add_argument("--database", choices=("postgres", "sqlite"), nargs="+", default=["postgres", "sqlite"])
    parser.add_argument("--sessions", type=int, default=SESSIONS, metavar="N")
    parser.add_argument("--agents", type=int, default=AGENTS, metavar="N")
    parser.add_argument("--sequence", default="fifo", metavar="NAME", help="the group's session selection (fifo)")
    options = parser.parse_args()
    figures: dict[str, object] = {}
    for database in options.database:
        say(f"passes on {database} ...")
        found = run(database, options.sessions, options.agents, options.sequence)
        figures |= found if database == options.database[0] else {f"{database}_{name}": v for name, v in found.items()}
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:32} {value}")


def run(database: str, sessions: int, agents: int, sequence: str) -> dict[str, Any]:
    """Return the figures of one kind of database, measured in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="backendai-bench-") as name, contextlib.ExitStack() as leaving:
        folder = Path(name)
        folder.chmod(0o755)
        url = f"sqlite:///{folder / 'portal.sqlite3'}"
        if database == "postgres":
            url = os.environ.get("DATABASE_URL") or leaving.enter_context(own_postgres(folder))
        environment = {
            **os.environ,
            "DATABASE_URL": url,
            "BACKENDAI_DATA": str(folder),
            "REDIS_URL": leaving.enter_context(own_redis(folder)),
            "DJANGO_SETTINGS_MODULE": "backendai.settings.portal",
        }
        command = [sys.executable, "-c", _START, str(sessions), str(agents), sequence]
        answer = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        return {"database": database, **json.loads(answer.stdout)}


@contextlib.contextmanager
def own_redis(folder: Path) -> Iterator[str]:
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    server = subprocess.Popen([find_server(), *options], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers(port), 10, pause=0.05)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.kill()
        server.wait()


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
