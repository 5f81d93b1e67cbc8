"""Plan → database: nothing clever, each decision is one call of a compute service."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

from backendai.cluster.models import ResourceGroup
from backendai.compute.services.place import Assignment, place_sessions
from backendai.compute.services.waits import Waiting, note_waits
from backendai.scheduler.plan import Plan, Step, Wait

_NOT_A_TRY = frozenset({"behind-in-queue", "start-time-not-reached", "image-building"})


def apply_plan(group: ResourceGroup, plan: Plan, *, now: datetime) -> set[UUID]:
    """Carry the plan out and return the sessions that were placed."""
    assignments = [
        Assignment(placement.session_id, placement.kernels, _steps(placement.steps, now))
        for placement in plan.placements
    ]
    placed = place_sessions(group.pk, assignments, now=now)
    note_waits([_waiting(wait, now) for wait in plan.waits], now=now)
    return placed


def _waiting(wait: Wait, now: datetime) -> Waiting:
    data: dict[str, Any] = {**wait.reason.details, "position": wait.position, "never": wait.reason.never}
    if wait.reason.until:
        data["until"] = wait.reason.until.isoformat()
    return Waiting(
        wait.session_id,
        wait.reason.code,
        wait.reason.message,
        data,
        skipped=wait.reason.code in _NOT_A_TRY,
        steps=_steps(wait.steps, now),
    )


def _steps(steps: Iterable[Step], now: datetime) -> list[dict[str, Any]]:
    at = now.isoformat()
    return [
        {
            "step": step["step"],
            "result": "SUCCESS" if step["passed"] else "FAILURE",
            "error_code": step["code"],
            "message": step["message"],
            "started_at": at,
            "ended_at": at,
        }
        for step in map(asdict, steps)
    ]
