"""Copies of SQLite databases."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def copy_tables(source: Path, target: Path) -> None:
    """Copy an SQLite database with what is in the files beside it."""
    with closing(sqlite3.connect(source)) as there, closing(sqlite3.connect(target)) as here:
        there.backup(here)
