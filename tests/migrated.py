"""The rows that the migrations wrote. Tests that commit leave the database with these, as the first one found it.

Django would empty every table and announce migrations anew, which writes each permission again: that took most of the
time of such a test, and what the migrations had sown was gone.
"""

from __future__ import annotations

from typing import Any

from django.db import connection, transaction

Rows = dict[str, list[tuple[Any, ...]]]


def read_rows() -> Rows:
    """Return what is in each table."""
    with connection.cursor() as cursor:
        return {table: rows_of(cursor, table) for table in connection.introspection.table_names(cursor)}


def restore(rows: Rows) -> None:
    """Let each table have these rows and no others."""
    with transaction.atomic(), connection.cursor() as cursor:
        for table, wanted in rows.items():
            found = rows_of(cursor, table)
            if found == wanted:
                continue
            cursor.execute(f"DELETE FROM {connection.ops.quote_name(table)}")
            if wanted:
                places = ", ".join(["%s"] * len(wanted[0]))
                cursor.executemany(f"INSERT INTO {connection.ops.quote_name(table)} VALUES ({places})", wanted)


def rows_of(cursor: Any, table: str) -> list[tuple[Any, ...]]:
    cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)} ORDER BY 1")
    return list(cursor.fetchall())
