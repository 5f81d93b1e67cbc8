"""A process of its own for measurements within Django, with a database of its own."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from backendai.ops.run.valkey import find_server
from bench._portal import ROOT, free_port, own_postgres, say, wait_until


def on_each(databases: Sequence[str], measure: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of each kind of database; those after the first one bear its name."""
    figures: dict[str, Any] = {}
    for database in databases:
        say(f"on {database} ...")
        found = measure(database)
        figures |= found if database == databases[0] else {f"{database}_{name}": v for name, v in found.items()}
    return figures


def run_in_process(code: str, database: str, words: Sequence[object], *, as_portal: bool = False) -> dict[str, Any]:
    """Return the figures that this code prints as JSON, given these words, on one kind of database: with the settings
    of the tests, or with those of the portal and a Redis."""
    with tempfile.TemporaryDirectory(prefix="backendai-bench-") as name, contextlib.ExitStack() as leaving:
        folder = Path(name)
        folder.chmod(0o755)
        url = f"sqlite:///{folder / 'portal.sqlite3'}"
        if database == "postgres":
            url = os.environ.get("DATABASE_URL") or leaving.enter_context(own_postgres(folder))
        if as_portal:
            told = {"DATABASE_URL": url, "BACKENDAI_DATA": str(folder)}
            told["REDIS_URL"] = leaving.enter_context(own_redis(folder))
        else:
            told = {"BACKENDAI_TEST_DATABASE_URL": url, "TMPDIR": str(folder)}
        told["DJANGO_SETTINGS_MODULE"] = f"backendai.settings.{'portal' if as_portal else 'testing'}"
        command = [sys.executable, "-c", code, *map(str, words)]
        environment = {**os.environ, **told}
        answer = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        return {"database": database, **json.loads(answer.stdout.splitlines()[-1])}


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
