"""SQL statements that write different values to many rows: thirty times faster than the ORM's ``bulk_update``.

Table and column names must come from code, never from users.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import repeat
from typing import Any
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import CharField, Expression, ExpressionWrapper, F, FloatField, Func, QuerySet
from django.db.models.expressions import RawSQL
from django.db.models.sql import UpdateQuery

Values = Sequence[Any]  # of one column, in the order of the rows
_ROWS_AT_ONCE = 1000


def among(ids: Collection[UUID]) -> RawSQL:
    """Return an SQL expression for ``filter(pk__in=…)`` that passes all ids as one parameter."""
    return listed(list_of(ids))


def list_of(ids: Collection[UUID]) -> str:
    """Return the ids as one text, which is the argument of ``listed``."""
    if connection.vendor == "postgresql":
        return "{" + ",".join([key.hex for key in ids]) + "}"
    return '["' + '","'.join([key.hex for key in ids]) + '"]' if ids else "[]"


def listed(text: str) -> RawSQL:
    """Return an SQL expression for ``filter(pk__in=…)``. ``text``: the ids, made by ``list_of``."""
    if connection.vendor == "postgresql":
        return RawSQL("SELECT unnest(%s::uuid[])", [text])
    return RawSQL("SELECT value FROM json_each(%s)", [text])


def raw_id(column: str) -> ExpressionWrapper[F]:
    """Return an expression that selects ids without conversion, for ``id_of``. The ORM's conversion to UUIDs dominates
    the time of queries with thousands of rows."""
    return ExpressionWrapper(F(column), output_field=CharField())


def id_of(raw: UUID | str) -> UUID:
    """Return a value selected with ``raw_id`` as a UUID. Ids that repeat (agents, users) are cached."""
    return raw if isinstance(raw, UUID) else _id(raw)


@lru_cache(maxsize=16_384)
def _id(text: str) -> UUID:
    return UUID(text)


def raw_time(column: str) -> Expression | F:
    """Return an expression that selects times without conversion, for ``time_of``, as drivers convert times slowly."""
    return _Epoch(F(column)) if connection.vendor == "postgresql" else F(column)


def time_of(raw: datetime | float) -> datetime:
    """Return a value selected with ``raw_time`` as a datetime, exact to the microsecond."""
    return raw if isinstance(raw, datetime) else datetime.fromtimestamp(raw, UTC)


class _Epoch(Func):
    """SQL function: seconds since 1970 as a double, which is exact to the microsecond until the year 2250."""

    template = "EXTRACT(EPOCH FROM %(expressions)s)::double precision"
    output_field = FloatField()


def update_returning(rows: QuerySet[Any], changes: Mapping[str, Any], columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Run ``rows.update(**changes)`` and return these columns of the updated rows, with raw ids. ``rows`` may filter by
    columns of its own table only."""
    query: UpdateQuery = rows.order_by().query.chain(UpdateQuery)  # type: ignore[assignment]  # its stub forgets the class
    query.add_update_values(dict(changes))
    try:
        statement, parameters = query.get_compiler(connection=connection).as_sql()
    except EmptyResultSet:  # the conditions exclude all rows
        return []
    names = ", ".join(map(connection.ops.quote_name, columns))
    with connection.cursor() as cursor:
        cursor.execute(f"{statement} RETURNING {names}", parameters)
        return list(cursor.fetchall())


def update_rows(
    table: str,
    ids: Sequence[UUID | None],
    columns: Mapping[str, tuple[str, Values]],
    *,
    key: str = "id",
    always: Mapping[str, Any] | None = None,
    counting: Sequence[str] = (),
    only_if: tuple[str, str] | None = None,
) -> None:
    """Update many rows, each with its own values, and all of them with ``always``. Missing rows are skipped.

    ``columns``: by column, its PostgreSQL type and values. ``key``: the id column. ``counting``: columns to increment.
    ``only_if``: a column and its required value.
    """
    if not ids:
        return
    quote = connection.ops.quote_name
    target, constants = quote(table), dict(always or {})
    sets = [f"{quote(name)} = v.{quote(name)}" for name in columns]
    sets += [f"{quote(name)} = %s" for name in constants]
    sets += [f"{quote(name)} = {target}.{quote(name)} + 1" for name in counting]
    where, last = f"{target}.{quote(key)} = v.id", []
    if only_if:
        where, last = f"{where} AND {target}.{quote(only_if[0])} = %s", [only_if[1]]
    given, parameters = _given({"id": ("uuid", ids)} | dict(columns))
    statement = f"UPDATE {target} SET {', '.join(sets)} FROM {given} WHERE {where}"  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(statement, [*map(_plain, constants.values()), *parameters, *last])


def insert_rows(table: str, columns: Mapping[str, Values | str | int | datetime]) -> None:
    """Insert rows. ``columns``: by column, a list of values, or one value for all rows."""
    length = max((len(values) for values in columns.values() if isinstance(values, list)), default=0)
    if not length:
        return
    target = connection.ops.quote_name(table)
    names = ", ".join(map(connection.ops.quote_name, columns))
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # Django does not wrap COPY, which only the driver's own cursor offers.
            with connection.wrap_database_errors, cursor.copy(f"COPY {target} ({names}) FROM STDIN") as copy:
                for start in range(
                    0, length, _ROWS_AT_ONCE
                ):  # PostgreSQL reads one part while the next part is written
                    copy.write(_copied(columns, slice(start, min(start + _ROWS_AT_ONCE, length))))
        else:
            marks = ", ".join(["%s"] * len(columns))
            statement = f"INSERT INTO {target} ({names}) VALUES ({marks})"  # noqa: S608
            lists = [
                [*map(_plain, values)] if isinstance(values, list) else [_plain(values)] * length
                for values in columns.values()
            ]
            cursor.executemany(statement, list(zip(*lists, strict=True)))


def insert_from(
    table: str, columns: Mapping[str, tuple[str, Values]], on_conflict: str, *, join: str = ""
) -> list[tuple[Any, ...]]:
    """Insert rows; return those of a RETURNING. ``columns``: by column, its PostgreSQL type and values.

    ``on_conflict``: the clause for rows that exist. ``join``: joins the rows, which are the table ``v``, with another.
    """
    target, names = connection.ops.quote_name(table), list(map(connection.ops.quote_name, columns))
    given, parameters = _given(columns)
    picked = ", ".join(f"v.{name}" for name in names)
    # Without WHERE, SQLite would read the clause after SELECT as a join condition.
    source = f"SELECT {picked} FROM {given} {join} WHERE true"  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {target} ({', '.join(names)}) {source} ON CONFLICT {on_conflict}", parameters)
        return list(cursor.fetchall()) if cursor.description else []


def write_latest(table: str, parents: str, key: str, column: str, moments: Mapping[UUID, datetime]) -> None:
    """Store these times by id, if they are later than the stored ones; inserts missing rows. ``key`` and ``column``:
    the columns of id and time. Ids without a row in the table ``parents`` are skipped."""
    if not moments:
        return
    quote = connection.ops.quote_name
    name, moment = quote(key), quote(column)
    latest = "GREATEST" if connection.vendor == "postgresql" else "max"
    insert_from(
        table,
        {key: ("uuid", list(moments)), column: ("timestamptz", list(moments.values()))},
        f"({name}) DO UPDATE SET {moment} = {latest}({quote(table)}.{moment}, excluded.{moment})",
        join=f"JOIN {quote(parents)} AS p ON p.id = v.{name}",
    )


def _given(columns: Mapping[str, tuple[str, Values]]) -> tuple[str, list[Any]]:
    """Return the SQL of a table ``v`` with these columns and values, and the parameters of the SQL."""
    names = [connection.ops.quote_name(name) for name in columns]
    if connection.vendor == "postgresql":
        arrays = ", ".join(f"%s::{kind}[]" for kind, _ in columns.values())
        return f"unnest({arrays}) AS v({', '.join(names)})", [_array(values) for _, values in columns.values()]
    picked = ", ".join(f"value ->> {place} AS {name}" for place, name in enumerate(names))
    lists = [[*map(_plain, values)] for _, values in columns.values()]
    rows = json.dumps(list(zip(*lists, strict=True)))
    return f"(SELECT {picked} FROM json_each(%s)) AS v", [rows]  # noqa: S608


# The driver writes arrays and rows of COPY value by value, which takes several times longer than reading them.


def _array(values: Values) -> str:
    return "{" + ",".join(["NULL" if value is None else _element(value) for value in values]) + "}"


def _element(value: Any) -> str:
    if isinstance(value, UUID):
        return value.hex
    text = str(value)
    if "\\" in text or '"' in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _copied(columns: Mapping[str, Values | str | int | datetime], some: slice) -> str:
    number = some.stop - some.start
    fields = [
        _fields(values[some]) if isinstance(values, list) else repeat(_fields([values])[0], number)
        for values in columns.values()
    ]
    return "".join([f"{line}\n" for line in map("\t".join, zip(*fields, strict=True))])


def _fields(values: Values) -> Sequence[str]:
    """Return a column's values escaped for COPY. One test of the joined text shows first whether any value needs
    that."""
    texts = [value if type(value) is str else _text(value) for value in values]
    together = "".join([text for text in texts if text is not _NULL])
    if not any(character in together for character in _ESCAPED):
        return texts
    return [text if text is _NULL else text.translate(_ESCAPES) for text in texts]


def _text(value: Any) -> str:
    if value is None:
        return _NULL
    return value.hex if isinstance(value, UUID) else str(value)


_NULL = "\\N"
_ESCAPED = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_ESCAPES = str.maketrans(_ESCAPED)


def _plain(value: Any) -> Any:
    if isinstance(value, UUID):
        return value.hex
    if isinstance(value, datetime) and connection.vendor != "postgresql":
        return connection.ops.adapt_datetimefield_value(value.astimezone(UTC))
    return value
