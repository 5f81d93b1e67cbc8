"""Ends running sessions whose time is up: a batch session's own limit, or a policy's maximum run time."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db.models import F, Q

from backendai.compute.models import ComputeSession
from backendai.compute.services.ending import end_each
from backendai.compute.services.moves import StatusCause
from backendai.compute.status import Outcome, Phase, Result, Status
from backendai.core.durations import describe_duration
from backendai.core.messages import Message
from backendai.core.session_kinds import KINDS

_MOST_AT_ONCE = 1000


def end_runs(now: datetime) -> int:
    """End sessions that have reached ``ends_at``, at most ``_MOST_AT_ONCE`` per call; returns how many. Sessions
    started by older versions have no ``ends_at``; only the batch limit ends them."""
    untold = Q(ends_at=None, started_at__lte=now - F("batch_timeout"))
    over = ComputeSession.objects.running().filter(Q(ends_at__lte=now) | untold, started_at__isnull=False)
    tasks: dict[UUID, StatusCause] = {}
    programs: dict[UUID, StatusCause] = {}
    lifetimes: dict[UUID, StatusCause] = {}
    rows = over.order_by("ends_at", "pk").values_list("pk", "session_type", "started_at", "ends_at", "batch_timeout")
    for pk, session_type, started_at, known, batch_timeout in rows[:_MOST_AT_ONCE]:
        ends_at = known or started_at + batch_timeout
        allowed = describe_duration(ends_at - started_at)
        data = {"allowed_seconds": round((ends_at - started_at).total_seconds()), "ends_at": ends_at.isoformat()}
        if batch_timeout is not None and started_at + batch_timeout <= ends_at:
            message = Message("The batch program did not end within {allowed}, its time limit.", allowed=allowed)
            tasks[pk] = StatusCause(Phase.RUN, "task-timeout", message, data, outcome=Outcome.EXPIRED)
            continue
        message = Message("It has run for {allowed}, the maximum lifetime of its policy.", allowed=allowed)
        group = programs if KINDS[session_type].has_result else lifetimes
        group[pk] = StatusCause(Phase.RUN, "session-lifetime", message, data, outcome=Outcome.EXPIRED)
    failed = [(whys, {"result": Result.FAILED}) for whys in (tasks, programs)]
    return sum(
        len(end_each(whys, only_from=[Status.RUNNING], now=now, **columns).terminating)
        for whys, columns in [*failed, (lifetimes, {})]
    )
