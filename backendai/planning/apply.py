"""Plan → database: nothing clever, each decision is one call of a compute service."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from json.encoder import encode_basestring as _quoted
from typing import Any
from uuid import UUID

from backendai.cluster.models import ResourceGroup
from backendai.compute.services.place import Assignment, place_sessions
from backendai.compute.services.waits import Waiting, note_waits
from backendai.scheduler.plan import Placement, Plan, Reason, Step, Wait


def apply_plan(group: ResourceGroup, plan: Plan, *, now: datetime) -> set[UUID]:
    """Carry the plan out and return the sessions that were placed."""
    writer = _Writer()
    placed = place_sessions(group.pk, [writer.assignment(placement) for placement in plan.placements], now=now)
    if plan.next_agent and plan.next_agent != group.next_agent:
        ResourceGroup.objects.filter(pk=group.pk).update(next_agent=plan.next_agent)
    note_waits([writer.waiting(wait) for wait in plan.waits], now=now)
    return placed


class _Writer:
    """Turns a plan into what is written. Steps and reasons are shared by many sessions: each is made text once.

    They are known by their ``id``; the plan keeps them alive.
    """

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._data: dict[int, dict[str, Any]] = {}

    def assignment(self, placement: Placement) -> Assignment:
        steps = self._steps(placement.steps)
        return Assignment(placement.session_id, placement.kernels, steps, placement.devices)

    def waiting(self, wait: Wait) -> Waiting:
        reason = wait.reason
        data = self._data.get(id(reason))
        if data is None:
            data = self._data[id(reason)] = _data_of(reason)
        return Waiting(
            wait.session_id,
            reason.code,
            reason.message,
            data,
            skipped=not wait.tried,
            steps=partial(self._steps, wait.steps),
            position=wait.position,
            overtaken=wait.overtaken,
        )

    def _steps(self, steps: Sequence[Step]) -> str:
        texts = []
        for step in steps:
            text = self._texts.get(id(step))
            if text is None:
                text = self._texts[id(step)] = _text_of(step)
            texts.append(text)
        return f"[{','.join(texts)}]"


def _data_of(reason: Reason) -> dict[str, Any]:
    data: dict[str, Any] = {**reason.details, "never": reason.never}
    if reason.until:
        data["until"] = reason.until.isoformat()
    return data


def _text_of(step: Step) -> str:
    code = f', "error_code": {_quoted(step.code)}' if step.code else ""
    result = "SUCCESS" if step.passed else "FAILURE"
    return f'{{"step": {_quoted(step.step)}, "result": "{result}", "message": {_quoted(step.message)}{code}}}'
