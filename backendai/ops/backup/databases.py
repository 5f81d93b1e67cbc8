"""Copies of the database: SQLite by its online backup, PostgreSQL by its own programs."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from backendai.base.process.packages import install_command
from backendai.ops.backup.archive import BackupRefused

SQLITE, POSTGRESQL = "sqlite", "postgresql"
MEMBERS = {SQLITE: "database.sqlite3", POSTGRESQL: "database.dump"}
_PAGES = 10_000  # at once: writers wait no longer than for these
_SQLITE_SIDE_FILES = ("-wal", "-shm", "-journal")
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
_OTHERS = """SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"""

Settings = Mapping[str, Any]  # what Django knows of the database


def kind_of(database: Settings) -> str:
    """Return the kind of a database."""
    return SQLITE if "sqlite" in database["ENGINE"] else POSTGRESQL


def save(database: Settings, target: Path) -> list[list[str]]:
    """Write a copy of the database to a file; return its applied migrations. Raises BackupRefused."""
    if kind_of(database) == POSTGRESQL:
        with _connect(database) as connection:
            migrations = connection.execute("SELECT app, name FROM django_migrations ORDER BY id").fetchall()
        _run("pg_dump", database, "--format=custom", "--no-owner", "--no-privileges", f"--file={target}")
        return [list(row) for row in migrations]
    source = Path(database["NAME"])
    if not source.exists():
        raise BackupRefused(f"{source} does not exist. Set BACKENDAI_DATA to the data folder of the platform.")
    with closing(sqlite3.connect(source, timeout=20)) as here, closing(sqlite3.connect(target)) as copy:
        here.backup(copy, pages=_PAGES)
        copy.execute("PRAGMA journal_mode=DELETE")
        return [list(row) for row in copy.execute("SELECT app, name FROM django_migrations ORDER BY id")]


def refuse_use(database: Settings, *, force: bool) -> None:
    """Raise BackupRefused if programs use the database, or it has tables that nobody said to replace."""
    if kind_of(database) == POSTGRESQL:
        with _connect(database) as connection:
            (others,) = connection.execute(_OTHERS).fetchone() or (0,)
            is_empty = not connection.execute(_TABLES).fetchall()
        if others:
            raise BackupRefused(
                f"{others} programs are connected to the database. Stop the platform first: docker compose stop web "
                "control beat appproxy sshgate, or bin/up with Ctrl-C."
            )
    else:
        path = Path(database["NAME"])
        is_empty = not path.exists() or not path.stat().st_size
    if not is_empty and not force:
        raise BackupRefused(
            "There is a database already. Restore into a new data folder (BACKENDAI_DATA=DIR) or an empty database, or "
            "replace this one for good with --force."
        )


def check(database: Settings, copy: Path) -> None:
    """Raise BackupRefused if a saved copy is damaged."""
    if kind_of(database) == POSTGRESQL:
        _run("pg_restore", None, "--list", str(copy))
        return
    try:
        with closing(sqlite3.connect(copy)) as connection:
            found = [row[0] for row in connection.execute("PRAGMA quick_check(1)")]
    except sqlite3.DatabaseError as error:
        found = [str(error)]
    if found != ["ok"]:
        raise BackupRefused(f"The database in the backup is damaged ({found[0]}). Nothing was restored.")


def put(database: Settings, copy: Path) -> None:
    """Replace the database by a saved copy. Raises BackupRefused."""
    if kind_of(database) == POSTGRESQL:
        drops, script = copy.with_suffix(".drops.sql"), copy.with_suffix(".sql")
        with _connect(database) as connection:  # pg_restore alone would leave tables that the copy does not have
            names = [sql.Identifier(name) for (name,) in connection.execute(_TABLES).fetchall()]
            drops.write_text("".join(f"DROP TABLE {name.as_string(connection)} CASCADE;\n" for name in names))
        _run("pg_restore", None, "--no-owner", "--no-privileges", f"--file={script}", str(copy))
        options = ("--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1")  # all or nothing
        _run("psql", database, *options, f"--file={drops}", f"--file={script}")
        return
    path = Path(database["NAME"])
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for suffix in _SQLITE_SIDE_FILES:  # they belong to the earlier database, and would be mixed into this one
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    shutil.move(copy, path)


def _connect(database: Settings) -> psycopg.Connection[tuple[Any, ...]]:
    told = {"host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD", "dbname": "NAME"}
    options = {name: database[key] for name, key in told.items() if database.get(key)}
    try:
        return psycopg.connect(**options, connect_timeout=10)
    except psycopg.OperationalError as error:
        raise BackupRefused(f"The database does not answer: {error}") from error


def _run(program: str, database: Settings | None, *options: str) -> None:
    """Run a program of PostgreSQL. The password goes through its environment, where other accounts cannot read it."""
    found = shutil.which(program) or next(
        (str(path) for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"), reverse=True)), None
    )
    if found is None:
        fix = install_command("postgresql-client")
        raise BackupRefused(f"{program} is missing. Install it, of the server's version or newer: {fix}")
    told = {"PGHOST": "HOST", "PGPORT": "PORT", "PGUSER": "USER", "PGPASSWORD": "PASSWORD", "PGDATABASE": "NAME"}
    own = {name: str(database[key]) for name, key in told.items() if database.get(key)} if database else {}
    done = subprocess.run(
        [found, *options],
        env=os.environ | own,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BackupRefused(f"{program} has failed: {done.stderr.strip()}")
