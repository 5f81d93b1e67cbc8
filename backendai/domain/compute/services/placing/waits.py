"""Writes wait reasons: on the session for its page, and in the history with one row per unchanged reason.

A session stores its reason's digest and the uid of its history row, so that a pass without changes only increments
counters.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import F

from backendai.base.core.messages import for_column
from backendai.base.db.bulk import among, update_rows
from backendai.domain.compute.models import ComputeSession, SchedulingRecord
from backendai.domain.compute.services.status.history import NO_STEPS, Entry, Steps, steps_text, write_history
from backendai.domain.compute.services.status.ledger import lock_pending
from backendai.domain.compute.services.status.moves import publish_changes
from backendai.domain.compute.status import Outcome, Phase, Status

_NO_NUMBERS: Mapping[str, Any] = {}


class Waiting(NamedTuple):
    """A pending session's wait reason: code, message, numbers, queue position and steps. ``skipped``: the session was
    not tried, or waiting for room would not help. ``overtaken``: others may pass it."""

    session_id: UUID
    code: str
    message: str
    data: Mapping[str, Any] = _NO_NUMBERS
    skipped: bool = False
    steps: Steps = NO_STEPS
    position: int | None = None
    overtaken: bool = False


class _Seen(NamedTuple):
    """The wait reason that is stored with a pending session."""

    digest: str
    record: UUID | None
    position: int | None
    overtaken_since: datetime | None


class _Note(NamedTuple):
    """A wait reason with its digest, and the stored one. Reasons whose digests have the same prefix share a history
    row."""

    wait: Waiting
    digest: str
    seen: _Seen

    @property
    def is_unchanged(self) -> bool:
        return self.seen.record is not None and self.digest == self.seen.digest

    @property
    def continues(self) -> bool:
        return self.seen.record is not None and self.digest[:_SAME_ROW] == self.seen.digest[:_SAME_ROW]


_SAME_ROW, _DIGEST = 8, 32
_SESSIONS, _RECORDS = ComputeSession._meta.db_table, SchedulingRecord._meta.db_table


def note_waits(waits: Sequence[Waiting], *, now: datetime, counts_tries: bool = True) -> None:
    """Store the wait reasons and queue positions of sessions that are still pending.

    An unchanged reason adds 1 to the counter of its history row. ``counts_tries``: each session whose reason is not
    ``skipped`` also gets 1 more of ``attempts``. A fixed number of statements.
    """
    if not waits:
        return
    with transaction.atomic():
        notes = _notes(waits)
        same = [note for note in notes if note.is_unchanged]
        # Locked, so that no PENDING history row is written after the end of the wait.
        pending = lock_pending([note.wait.session_id for note in notes if not note.is_unchanged])
        changed = [note for note in notes if note.wait.session_id in pending]
        reworded = [note for note in changed if note.continues]
        fresh = [note for note in changed if not note.continues]
        _write_reasons(reworded, [note.seen.record for note in reworded])
        _write_reasons(fresh, _write_rows(fresh, now))
        _reword_rows(reworded, now)
        _count_rows(same, now)
        _write_positions([note for note in same if note.wait.position != note.seen.position])
        if counts_tries:
            _count_tries([note.wait.session_id for note in notes if not note.wait.skipped])
        _mark_overtaken(notes, now)
        publish_changes([note.wait.session_id for note in (*reworded, *fresh)])


def _notes(waits: Sequence[Waiting]) -> list[_Note]:
    """Return each wait with the session's stored reason, without sessions that are no longer pending."""
    rows = ComputeSession.objects.filter(pk__in=among([wait.session_id for wait in waits]), status=Status.PENDING)
    columns = rows.order_by().values_list("pk", "wait_digest", "wait_record", "queue_position", "overtaken_since")
    seen = {pk: _Seen(digest, record, position, since) for pk, digest, record, position, since in columns}
    digests: dict[tuple[int, str, str, bool], str] = {}
    notes = []
    for wait in waits:
        if wait.session_id in seen:
            key = id(wait.data), wait.code, wait.message, wait.skipped
            if key not in digests:
                digests[key] = _digest(wait)
            notes.append(_Note(wait, digests[key], seen[wait.session_id]))
    return notes


def _digest(wait: Waiting) -> str:
    row = hashlib.sha256(f"{wait.code} {wait.skipped}".encode()).hexdigest()[:_SAME_ROW]
    text = f"{wait.message}\n{_text_of(wait.data)}"
    return row + hashlib.sha256(text.encode()).hexdigest()[: _DIGEST - _SAME_ROW]


def _text_of(data: Mapping[str, Any]) -> str:
    return json.dumps(dict(data), sort_keys=True, default=str)


def _write_reasons(notes: Sequence[_Note], records: Sequence[Any]) -> None:
    texts: dict[int, str] = {}
    for note in notes:
        if id(note.wait.data) not in texts:
            texts[id(note.wait.data)] = _text_of(note.wait.data)
    columns: dict[str, tuple[str, Sequence[Any]]] = {
        "status_reason": ("text", [note.wait.code for note in notes]),
        "status_message": ("text", [for_column(note.wait.message) for note in notes]),
        "status_data": ("jsonb", [texts[id(note.wait.data)] for note in notes]),
        "wait_digest": ("text", [note.digest for note in notes]),
        "wait_record": ("uuid", records),
        "queue_position": ("integer", [note.wait.position for note in notes]),
    }
    ids = [note.wait.session_id for note in notes]
    update_rows(_SESSIONS, ids, columns, counting=["version"], only_if=("status", Status.PENDING))


def _write_rows(notes: Sequence[_Note], now: datetime) -> list[str]:
    entries = [
        Entry(
            note.wait.session_id,
            Status.PENDING,
            Outcome.SKIPPED if note.wait.skipped else Outcome.NEED_RETRY,
            note.wait.code,
            note.wait.message,
            steps_text(note.wait.steps),
        )
        for note in notes
    ]
    return write_history(entries, Phase.SCHEDULE, Status.PENDING, now=now)


def _reword_rows(notes: Sequence[_Note], now: datetime) -> None:
    columns: dict[str, tuple[str, Sequence[Any]]] = {
        "message": ("text", [for_column(note.wait.message) for note in notes]),
        "sub_steps": ("jsonb", [steps_text(note.wait.steps) for note in notes]),
    }
    records = [note.seen.record for note in notes]
    update_rows(_RECORDS, records, columns, key="uid", counting=["attempts"], always={"updated_at": now})


def _count_rows(notes: Sequence[_Note], now: datetime) -> None:
    records = [note.seen.record for note in notes if note.seen.record]
    if records:
        SchedulingRecord.objects.filter(uid__in=among(records)).update(attempts=F("attempts") + 1, updated_at=now)


def _write_positions(notes: Sequence[_Note]) -> None:
    columns = {"queue_position": ("integer", [note.wait.position for note in notes])}
    ids = [note.wait.session_id for note in notes]
    update_rows(_SESSIONS, ids, columns, only_if=("status", Status.PENDING))


def _count_tries(session_ids: Sequence[UUID]) -> None:
    if session_ids:
        ComputeSession.objects.filter(pk__in=among(session_ids)).update(attempts=F("attempts") + 1)


def _mark_overtaken(notes: Iterable[_Note], now: datetime) -> None:
    new = [note.wait.session_id for note in notes if note.wait.overtaken and note.seen.overtaken_since is None]
    if new:
        ComputeSession.objects.filter(pk__in=among(new), overtaken_since=None).update(overtaken_since=now)
