"""Writes rows of the scheduling history, many at once."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from backendai.base.core.messages import for_column
from backendai.base.db.bulk import insert_rows
from backendai.domain.compute.models import SchedulingRecord
from backendai.domain.compute.status import Outcome, Phase

NO_STEPS = "[]"
Steps = (
    str | Sequence[Mapping[str, Any]] | Callable[[], str]
)  # text, data, or a function that makes them when the row is written


@dataclass(frozen=True, slots=True)
class Entry:
    """The values of one history row. ``steps``: a JSON list of objects with ``step``, ``result``, ``message`` and an
    optional ``error_code``. The times of the row are the times of its steps."""

    session_id: UUID
    from_status: str
    result: Outcome = Outcome.SUCCESS
    error_code: str = ""
    message: str = ""
    steps: str = NO_STEPS


def write_history(entries: Sequence[Entry], phase: Phase, to_status: str, *, now: datetime) -> list[str]:
    """Insert one row for each entry, in one statement; returns their uids in the same order."""
    uids = _random_uids(len(entries))
    insert_rows(
        SchedulingRecord._meta.db_table,
        {
            "uid": uids,
            "session_id": [entry.session_id for entry in entries],
            "phase": str(phase),
            "result": [str(entry.result) for entry in entries],
            "from_status": [str(entry.from_status) for entry in entries],
            "to_status": str(to_status),
            "attempts": 1,
            "error_code": [entry.error_code for entry in entries],
            "message": [for_column(entry.message) for entry in entries],
            "sub_steps": [entry.steps for entry in entries],
            "created_at": now,
            "updated_at": now,
        },
    )
    return uids


def _random_uids(number: int) -> list[str]:
    """Return version 4 UUIDs from one read of random bytes. One read for each was slower than writing the rows."""
    text = secrets.token_hex(16 * number)
    return [
        f"{text[at : at + 12]}4{text[at + 13 : at + 16]}a{text[at + 17 : at + 32]}" for at in range(0, 32 * number, 32)
    ]


def steps_text(steps: Steps) -> str:
    """Return the steps as stored text."""
    if isinstance(steps, str):
        return steps
    return steps() if callable(steps) else json.dumps(list(steps))
