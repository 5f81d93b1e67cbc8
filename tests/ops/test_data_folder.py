"""The database on one machine is its user's own, whatever the folder's mode."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backendai.ops.run import data_folder
from backendai.ops.run.data_folder import make_database_private


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """Files are readable for everybody unless somebody sees to it."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def write(database: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE IF NOT EXISTS people (name)")
    connection.commit()
    return connection


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def test_it_makes_a_database_whose_files_only_its_user_can_read(tmp_path: Path) -> None:
    database = tmp_path / "data" / "portal.sqlite3"
    make_database_private(database)
    write(database)
    assert modes(database.parent) == dict.fromkeys(
        ("portal.sqlite3", "portal.sqlite3-wal", "portal.sqlite3-shm"), 0o600
    )


def test_it_closes_a_database_that_was_open_to_read_and_keeps_what_is_in_it(tmp_path: Path) -> None:
    database = tmp_path / "portal.sqlite3"
    connection = write(database)
    assert set(modes(tmp_path).values()) == {0o644}
    connection.execute("INSERT INTO people VALUES ('ada')")
    connection.commit()
    make_database_private(database)
    assert len(modes(tmp_path)) == 3
    assert set(modes(tmp_path).values()) == {0o600}
    assert write(database).execute("SELECT name FROM people").fetchall() == [("ada",)]


def test_it_closes_the_folders_in_which_other_programs_make_files(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir(mode=0o755)  # of an earlier version
    lock = data_folder.lock(tmp_path)
    os.close(lock)
    assert modes(tmp_path) == {"up.lock": 0o600, "logs": 0o700, "valkey": 0o700}


def test_tests_delete_their_data_folder_when_they_end() -> None:
    code = "import backendai.settings.testing as one; print(one._data)"
    folder = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert folder and not Path(folder).exists()
