"""Carries out a plan: each decision becomes one call of a compute service."""

from __future__ import annotations

import json
from datetime import datetime
from functools import partial
from json.encoder import encode_basestring as _quoted
from typing import Any
from uuid import UUID

from backendai.base.core.messages import for_json
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.cluster.services import may_count_tries
from backendai.domain.compute.services.placing.place import Assignment, place_sessions
from backendai.domain.compute.services.placing.waits import Waiting, note_waits
from backendai.domain.planning.steps import short_steps
from backendai.scheduler.plan import Placement, Plan, Reason, Step, Trail, Wait


def apply_plan(group: ResourceGroup, plan: Plan, *, now: datetime) -> set[UUID]:
    """Place the sessions of the plan and store its wait reasons; returns the ids of the placed sessions."""
    writer = _Writer()
    placed = place_sessions(group.pk, [writer.assignment(placement) for placement in plan.placements], now=now)
    if plan.next_agent and plan.next_agent != group.next_agent:
        ResourceGroup.objects.filter(pk=group.pk).update(next_agent=plan.next_agent)
    counts_tries = any(wait.tried for wait in plan.waits) and may_count_tries(group.pk, now=now)
    note_waits([writer.waiting(wait) for wait in plan.waits], now=now, counts_tries=counts_tries)
    return placed


class _Writer:
    """Converts decisions of a plan into arguments of services. Reasons shared by several sessions, recognised by
    ``id()``, are serialized once."""

    def __init__(self) -> None:
        self._shared: dict[int, str] = {}
        self._data: dict[int, dict[str, Any]] = {}

    def assignment(self, placement: Placement) -> Assignment:
        return Assignment(placement.session_id, placement.kernels, self._text(placement.trail), placement.devices)

    def waiting(self, wait: Wait) -> Waiting:
        reason = wait.reason
        data = self._data.get(id(reason))
        if data is None:
            data = self._data[id(reason)] = data_of(reason)
        return Waiting(
            wait.session_id,
            reason.code,
            reason.message,
            data,
            skipped=not wait.tried,
            steps=partial(self._text, wait.trail),
            position=wait.position,
            overtaken=wait.overtaken,
        )

    def _text(self, trail: Trail) -> str:
        shared = self._shared.get(id(trail.shared))
        if shared is None:
            shared = self._shared[id(trail.shared)] = "".join(
                [f", {_text_of(step)}" for step in short_steps(trail.shared)]
            )
        own = "".join([f", {_text_of(step)}" for step in trail.own])
        return f'[["sequencing", {_message(trail.in_turn)}]{shared}{own}]'


def data_of(reason: Reason) -> dict[str, Any]:
    """Return a reason's numbers, ``never`` and ``until`` as the JSON object that a session stores."""
    data: dict[str, Any] = {**reason.details, "never": reason.never}
    if reason.until:
        data["until"] = reason.until.isoformat()
    return data


def _message(message: str) -> str:
    data = for_json(message)
    return _quoted(data) if isinstance(data, str) else json.dumps(data)


def _text_of(step: Step) -> str:
    """Return the step as stored. Passed steps, the most frequent, are stored as a pair of name and message."""
    if step.passed:
        return f"[{_quoted(step.step)}, {_message(step.message)}]"
    return (
        f'{{"step": {_quoted(step.step)}, "message": {_message(step.message)}, '
        f'"result": "FAILURE", "error_code": {_quoted(step.code)}}}'
    )
