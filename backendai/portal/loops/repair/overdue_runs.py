"""Ends running sessions whose time is up: a batch session's own limit, a policy's maximum run time, or a moved end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from backendai.base.core.durations import describe_duration
from backendai.base.core.messages import Message
from backendai.base.core.session_kinds import KINDS
from backendai.base.db.bulk import among
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.life.ending import end_each
from backendai.domain.compute.services.status.moves import StatusCause
from backendai.domain.compute.status import Outcome, Phase, Result, Status

_MOST_AT_ONCE = 1000
_COLUMNS = ("pk", "session_type", "started_at", "ends_at", "is_end_moved", "batch_timeout")


def end_runs(now: datetime) -> int:
    """End sessions that have reached ``ends_at``, at most ``_MOST_AT_ONCE`` per call; returns how many. An end that is
    moved meanwhile holds."""
    over = ComputeSession.objects.running().filter(ends_at__lte=now, started_at__isnull=False)
    ids = list(over.order_by("ends_at", "pk").values_list("pk", flat=True)[:_MOST_AT_ONCE])
    if not ids:
        return 0
    with transaction.atomic():
        held = over.filter(pk__in=among(ids)).order_by("pk").select_for_update(no_key=True)
        failed: dict[str, dict[UUID, StatusCause]] = {"task-timeout": {}, "session-lifetime": {}}
        ended: dict[UUID, StatusCause] = {}
        for row in held.values(*_COLUMNS):
            why = _why(row)
            (failed[why.code] if KINDS[row["session_type"]].has_result else ended)[row["pk"]] = why
        groups: list[tuple[dict[UUID, StatusCause], dict[str, Any]]] = [(ended, {})]
        groups += [(whys, {"result": Result.FAILED}) for whys in failed.values()]
        return sum(
            len(end_each(whys, only_from=[Status.RUNNING], now=now, **columns).terminating) for whys, columns in groups
        )


def _why(row: Mapping[str, Any]) -> StatusCause:
    batch_timeout, started_at, ends_at = row["batch_timeout"], row["started_at"], row["ends_at"]
    allowed = describe_duration(ends_at - started_at)
    data = {"allowed_seconds": round((ends_at - started_at).total_seconds()), "ends_at": ends_at.isoformat()}
    code = "session-lifetime"
    if row["is_end_moved"] and not KINDS[row["session_type"]].has_result:
        message = Message("It has run for {allowed}, until the end that was set for it.", allowed=allowed)
    elif row["is_end_moved"] or (batch_timeout is not None and started_at + batch_timeout <= ends_at):
        code = "task-timeout"
        message = Message("The batch program did not end within {allowed}, its time limit.", allowed=allowed)
    else:
        message = Message("It has run for {allowed}, the maximum lifetime of its policy.", allowed=allowed)
    return StatusCause(Phase.RUN, code, message, data, outcome=Outcome.EXPIRED)
