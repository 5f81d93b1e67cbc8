"""PostgreSQL and Redis: those that the environment names, else private ones, started as ``bin/test`` starts them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg

from tests.patience import until

_ROOT = Path(__file__).resolve().parents[2]
_POSTGRES, _REDIS = "BACKENDAI_TEST_POSTGRES_URL", "BACKENDAI_TEST_REDIS_URL"
_SERVE = f'source .ci/services.sh; start_redis; start_postgres; echo "${_POSTGRES} ${_REDIS}"; read -r _; stop_services'
_CONNECTIONS_CLOSED_WITHIN = 15.0


@dataclass(frozen=True, slots=True)
class Stores:
    """Addresses of an empty database and of a Redis."""

    database_url: str
    redis_url: str


@contextmanager
def stores() -> Iterator[Stores]:
    """Yield stores; the database is dropped at the end."""
    with _servers() as (postgres_url, redis_url):
        name = f"system_{uuid4().hex[:8]}"
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
            try:
                yield Stores(f"{postgres_url.rpartition('/')[0]}/{name}", redis_url)
            finally:
                until(lambda: _is_unused(connection, name), _CONNECTIONS_CLOSED_WITHIN, "the database is let go")
                connection.execute(f"DROP DATABASE {name}")


@contextmanager
def _servers() -> Iterator[tuple[str, str]]:
    told = os.environ.get(_POSTGRES, ""), os.environ.get(_REDIS, "")
    if all(told):
        yield told
        return
    scratch = Path(tempfile.mkdtemp(prefix="backendai-stores-"))
    scratch.chmod(0o711)  # PostgreSQL's own user must pass
    (scratch / "logs").mkdir()
    environment = os.environ | {"SCRATCH": str(scratch), "LOGS": str(scratch / "logs"), "PYTHON": sys.executable}
    with subprocess.Popen(
        ["bash", "-euc", _SERVE], cwd=_ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as shell:
        assert shell.stdin and shell.stdout
        postgres_url, redis_url = shell.stdout.readline().split()
        try:
            yield postgres_url, redis_url
        finally:
            shell.stdin.write("\n")
            shell.stdin.close()
            shell.wait()
            shutil.rmtree(scratch)


def _is_unused(connection: psycopg.Connection, name: str) -> bool:
    row = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = %s", [name]).fetchone()
    return row is not None and row[0] == 0
