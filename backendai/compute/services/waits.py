"""Writing why sessions wait: on the session for the screen, and in the history, one row per unchanged reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, Max

from backendai.compute.models import ComputeSession, SchedulingRecord, history_entry
from backendai.compute.services.bulk import set_column_by_id
from backendai.compute.services.moves import touch
from backendai.compute.status import Outcome, Phase, Status


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pending session stays pending: the code, one sentence, its numbers, and its place in the queue."""

    session_id: UUID
    code: str
    message: str
    data: Mapping[str, Any] = field(default_factory=dict)
    skipped: bool = False
    steps: list[dict[str, Any]] = field(default_factory=list)


def note_waits(waits: Sequence[Waiting], *, now: datetime) -> None:
    """Write the reasons: unchanged ones only count up; changed ones are shown at once."""
    if not waits:
        return
    with transaction.atomic():
        pending = _pending([wait.session_id for wait in waits])
        waits = [wait for wait in waits if wait.session_id in pending]
        changed = [
            wait for wait in waits if pending[wait.session_id] != (wait.code, wait.message[:500], dict(wait.data))
        ]
        _write_reasons(changed)
        tried = [wait.session_id for wait in waits if not wait.skipped]
        ComputeSession.objects.filter(pk__in=tried).update(attempts=F("attempts") + 1)
        _write_history(waits, now)
        touch([wait.session_id for wait in changed])


def _pending(session_ids: list[UUID]) -> dict[UUID, tuple[str, str, dict[str, Any]]]:
    rows = ComputeSession.objects.filter(pk__in=session_ids, status=Status.PENDING)
    return {
        pk: (code, message, data)
        for pk, code, message, data in rows.values_list("pk", "status_reason", "status_message", "status_data")
    }


def _write_reasons(changed: Sequence[Waiting]) -> None:
    by_text: dict[tuple[str, str], list[Waiting]] = {}
    for wait in changed:
        by_text.setdefault((wait.code, wait.message[:500]), []).append(wait)
    for (code, message), group in by_text.items():
        for data, members in _by_data(group):
            ComputeSession.objects.filter(pk__in=members, status=Status.PENDING).update(
                status_reason=code, status_message=message, status_data=data
            )


def _by_data(waits: Sequence[Waiting]) -> list[tuple[dict[str, Any], list[UUID]]]:
    groups: list[tuple[dict[str, Any], list[UUID]]] = []
    for wait in waits:
        data = dict(wait.data)
        for known, members in groups[-1:]:
            if known == data:
                members.append(wait.session_id)
                break
        else:
            groups.append((data, [wait.session_id]))
    return groups


def _write_history(waits: Sequence[Waiting], now: datetime) -> None:
    newest = _newest_records([wait.session_id for wait in waits])
    same: list[tuple[int, str]] = []
    fresh: list[SchedulingRecord] = []
    for wait in waits:
        outcome = Outcome.SKIPPED if wait.skipped else Outcome.NEED_RETRY
        last = newest.get(wait.session_id)
        if last and (last[1], last[2], last[3]) == (Phase.SCHEDULE, outcome, wait.code):
            same.append((last[0], wait.message[:500]))
        else:
            fresh.append(_record(wait, outcome, now))
    SchedulingRecord.objects.filter(pk__in=[pk for pk, _ in same]).update(attempts=F("attempts") + 1, updated_at=now)
    set_column_by_id("compute_schedulingrecord", "message", "text", same, id_cast="bigint")
    SchedulingRecord.objects.bulk_create(fresh)


def _newest_records(session_ids: list[UUID]) -> dict[UUID, tuple[int, str, str, str]]:
    newest = SchedulingRecord.objects.filter(session__in=session_ids).values("session").annotate(newest=Max("id"))
    rows = SchedulingRecord.objects.filter(pk__in=newest.order_by().values("newest"))
    return {
        session_id: (pk, phase, result, code)
        for session_id, pk, phase, result, code in rows.values_list("session_id", "pk", "phase", "result", "error_code")
    }


def _record(wait: Waiting, outcome: Outcome, now: datetime) -> SchedulingRecord:
    return history_entry(
        session_id=wait.session_id,
        phase=Phase.SCHEDULE,
        result=outcome,
        from_status=Status.PENDING,
        to_status=Status.PENDING,
        error_code=wait.code,
        message=wait.message,
        sub_steps=wait.steps,
        created_at=now,
        updated_at=now,
    )
