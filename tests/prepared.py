"""What takes long to make and many tests begin with: migrated databases and collected assets.

Both are made once and copied. ``var/test`` keeps them for later runs; a template in PostgreSQL stays in its server.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

import psycopg
from django.db.backends.base.base import BaseDatabaseWrapper

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / "var" / "test"
STAMP = ".collected-from"


@contextmanager
def locked(name: str) -> Iterator[Path]:
    """Yield the folder of what test processes share, which one process at a time may add ``name`` to."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield CACHE


@cache
def state_of_migrations() -> str:
    """Return a digest of all migrations and of the versions of other packages, which have migrations too."""
    files = sorted(ROOT.glob("backendai/**/migrations/*.py"))
    digest = hashlib.sha256()
    for file in [ROOT / "requirements.txt", *files]:
        digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def copy_sqlite(target: Path) -> None:
    """Write a migrated database without any further rows to ``target``."""
    with locked("tables") as folder:
        template = folder / f"tables-{state_of_migrations()}.sqlite3"
        if not template.exists():
            for former in folder.glob("tables-*.sqlite3*"):
                former.unlink()
            made = folder / f"tables-new-{os.getpid()}.sqlite3"
            _migrate(f"sqlite:///{made}")
            _copy(made, template.with_suffix(".copy"))
            template.with_suffix(".copy").rename(template)
            made.unlink()
        _copy(template, target)


def take_assets(target: Path) -> None:
    """Link the assets that a platform has collected to ``target``, if one has. ``prepare`` renews outdated ones."""
    with locked("assets") as folder:
        if (folder / "assets").is_dir() and not target.exists():
            shutil.copytree(folder / "assets", target, copy_function=_share)


def keep_assets(source: Path) -> None:
    """Keep the assets of a platform for the next one, unless they are the same."""
    with locked("assets") as folder:
        kept = folder / "assets"
        if kept.is_dir() and (kept / STAMP).read_bytes() == (source / STAMP).read_bytes():
            return
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(source, kept, copy_function=_share)


def _share(source: str, target: str) -> None:
    # Assets are replaced, so a link is enough; their stamp and compressed forms are written in place. Another file
    # system, such as the small disk of the chaos tests, gets a copy.
    if source.endswith((STAMP, ".gz")):
        shutil.copy2(source, target)
        return
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copy2(source, target)


@contextmanager
def database(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Connect to a migrated database of this process's own."""
    options = connection.settings_dict
    if connection.vendor == "sqlite":
        target = Path(options["NAME"]).with_name("test.sqlite3")
        copy_sqlite(target)
        options["NAME"] = str(target)
        yield
        return
    with postgres_copy(os.environ["BACKENDAI_TEST_DATABASE_URL"]) as name:
        options["NAME"] = name
        yield
        connection.close()


@contextmanager
def postgres_copy(url: str) -> Iterator[str]:
    """Yield the name of a migrated database on the server of ``url``, and drop it afterwards."""
    server, template = url.rpartition("/")[0], f"template_{state_of_migrations()}"
    name = f"test_{os.getpid()}"
    with psycopg.connect(url, autocommit=True) as connection:
        with locked("postgres"):
            known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [template]).fetchone()
            if not known:
                connection.execute(f"CREATE DATABASE {template}_new")
                _migrate(f"{server}/{template}_new")
                connection.execute(f"ALTER DATABASE {template}_new RENAME TO {template}")
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield name
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _migrate(url: str) -> None:
    told = os.environ | {"BACKENDAI_TEST_DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "backendai.settings.testing"}
    command = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
    done = subprocess.run(command, cwd=ROOT, env=told, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"The migrations failed:\n{done.stdout}{done.stderr}")


def _copy(source: Path, target: Path) -> None:
    # What is in the files beside a database comes, too.
    with closing(sqlite3.connect(source)) as there, closing(sqlite3.connect(target)) as here:
        there.backup(here)
