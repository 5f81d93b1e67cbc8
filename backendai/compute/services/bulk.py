"""One statement for many rows with different values: the ORM's ``bulk_update`` is thirty times slower."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import connection


def set_column_by_id(table: str, column: str, cast: str, pairs: Sequence[tuple[Any, Any]], *, id_cast: str) -> None:
    """Set ``column`` of each row to its own value. ``pairs`` are (id, value); casts are PostgreSQL type names.

    Table and column names come from code, never from people.
    """
    if not pairs:
        return
    quoted, name = connection.ops.quote_name(table), connection.ops.quote_name(column)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            values = ", ".join([f"(%s::{id_cast}, %s::{cast})"] * len(pairs))
            parameters = [value for pair in pairs for value in pair]
            statement = (
                f"UPDATE {quoted} SET {name} = v.value FROM (VALUES {values}) AS v(id, value) "  # noqa: S608
                f"WHERE {quoted}.id = v.id"
            )
            cursor.execute(statement, parameters)
        else:
            rows = json.dumps([[_plain(key), _plain(value)] for key, value in pairs])
            cursor.execute(
                f"UPDATE {quoted} SET {name} = v.value FROM (SELECT value ->> 0 AS id, value ->> 1 AS value "  # noqa: S608
                f"FROM json_each(%s)) AS v WHERE {quoted}.id = v.id",
                [rows],
            )


def _plain(value: Any) -> Any:
    return value.hex if isinstance(value, UUID) else value
