"""Adds to many rows with one statement, and creates missing ones. Works with PostgreSQL and SQLite."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from backendai.base.db.bulk import insert_from

_BUCKET = {
    "resource_group_id": "bigint", "user_id": "uuid", "project_id": "uuid", "domain_id": "bigint",
    "day": "date", "slot": "text", "amount_seconds": "float8",
}  # fmt: skip
_SAMPLE = {
    "kernel_id": "uuid", "at": "timestamptz", "seconds": "float8", "cpu": "float8", "mem_bytes": "bigint",
    "devices": "jsonb", "net_rx": "bigint", "net_tx": "bigint", "io_read": "bigint", "io_write": "bigint",
    "is_thinned": "boolean",
}  # fmt: skip


def add_to_buckets(amounts: Mapping[tuple[int, str, str, int, str, str], float]) -> None:
    """Add each amount to the daily sum of its (group, user, project, domain, day, slot)."""
    rows = [  # sorted: two that write the same rows at once wait for each other instead of forming a circle
        [group, UUID(user), UUID(project), domain, day, slot, amount]
        for (group, user, project, domain, day, slot), amount in sorted(amounts.items())
    ]
    _insert(
        "usage_usagebucket",
        _BUCKET,
        rows,
        "(resource_group_id, day, user_id, project_id, domain_id, slot) "
        "DO UPDATE SET amount_seconds = usage_usagebucket.amount_seconds + excluded.amount_seconds",
    )


def add_used(amounts: Mapping[tuple[int, str, str, int, str, str], tuple[float, float]]) -> None:
    """Add used amounts to the daily sum of each (group, user, project, domain, day, slot).

    Also adds the amounts allocated while the usage was measured.
    """
    rows = [
        [group, UUID(user), UUID(project), domain, day, slot, 0.0, used, measured]
        for (group, user, project, domain, day, slot), (used, measured) in sorted(amounts.items())
    ]
    _insert(
        "usage_usagebucket",
        {**_BUCKET, "used_seconds": "float8", "measured_seconds": "float8"},
        rows,
        "(resource_group_id, day, user_id, project_id, domain_id, slot) "
        "DO UPDATE SET used_seconds = usage_usagebucket.used_seconds + excluded.used_seconds, "
        "measured_seconds = usage_usagebucket.measured_seconds + excluded.measured_seconds",
    )


def add_samples(samples: Iterable[tuple[UUID, datetime, Sequence[Any]]]) -> set[UUID]:
    """Save the samples (kernel, at, and the other columns in their order); existing ones stay unchanged.

    Returns the kernels of the saved ones.
    """
    rows = [
        [pk, at, *(json.dumps(one) if isinstance(one, dict | list) else one for one in rest)]
        for pk, at, rest in samples
    ]
    written = _insert(
        "usage_usagesample", _SAMPLE, rows, "(kernel_id, at) DO NOTHING RETURNING usage_usagesample.kernel_id"
    )
    return {UUID(str(pk)) for (pk,) in written}


def write_marks(marks: Iterable[tuple[UUID, int, datetime, bool]]) -> None:
    """Save the time up to which each kernel's placement is counted: (kernel, generation, until, closed)."""
    rows = [[pk, generation, until, closed] for pk, generation, until, closed in marks]
    _insert(
        "usage_observedkernel",
        {"kernel_id": "uuid", "generation": "int", "until": "timestamptz", "is_closed": "boolean"},
        rows,
        "(kernel_id) DO UPDATE SET generation = excluded.generation, until = excluded.until, "
        "is_closed = excluded.is_closed",
    )


def _insert(table: str, kinds: Mapping[str, str], rows: list[list[Any]], on_conflict: str) -> list[tuple[Any, ...]]:
    if not rows:
        return []
    columns = {
        name: (kind, values) for (name, kind), values in zip(kinds.items(), zip(*rows, strict=True), strict=True)
    }
    return insert_from(table, columns, on_conflict)
