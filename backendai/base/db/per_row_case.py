"""An SQL expression with a different value for each row, for the ORM's ``update``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.db import connection, models
from django.db.models.expressions import RawSQL

Kind = Literal["text", "integer", "bigint", "double precision", "jsonb", "timestamptz", "boolean"]


def by_row(model: type[models.Model], values: Mapping[UUID, Any], kind: Kind = "text") -> RawSQL:
    """Return an SQL expression that gives each row its value by its id; rows without a value get NULL. Values of kind
    ``jsonb`` are Python data. Times have a time zone."""
    postgres = connection.vendor == "postgresql"
    quote = connection.ops.quote_name
    key = f"{quote(model._meta.db_table)}.{quote('id')}"
    if postgres:
        known: dict[str, Any] = {str(pk): _plain(value) for pk, value in values.items()}
        taken = f"(%s::jsonb {'->' if kind == 'jsonb' else '->>'} {key}::text)::{kind}"
    else:
        # SQLite stores ids as 32 hexadecimal digits, and JSON as text.
        known = {pk.hex: json.dumps(value) if kind == "jsonb" else _plain(value) for pk, value in values.items()}
        taken = f"json_extract(%s, '$.\"' || {key} || '\"')"
    return RawSQL(taken, [json.dumps(known)])  # noqa: S611  (names come from the model)


def _plain(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    if connection.vendor == "postgresql":
        return value.isoformat()
    return str(connection.ops.adapt_datetimefield_value(value))
