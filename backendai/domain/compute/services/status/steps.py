"""Makes the steps of a kernel's start with their times for history rows, and converts stored steps for display."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from backendai.base.core.messages import Message, for_json
from backendai.domain.compute.models import Kernel, SchedulingRecord
from backendai.domain.compute.status import Outcome, Status

Step = dict[str, Any]

_STAGES = {
    Status.SCHEDULED: "hand-over",
    Status.PULLING: "pull",
    Status.CREATING: "create",
}
_LONGEST_SECONDS = 10**6  # larger numbers from an agent are not plausible


def steps_taken(kernel: Kernel, agent: str, to: Status, timings: Mapping[str, float], *, now: datetime) -> list[Step]:
    """Return the kernel's steps, including the steps that its move to ``to`` completes. ``timings``: seconds measured
    by the agent."""
    stage, since = _STAGES.get(Status(kernel.status), ""), kernel.changed_at
    if not stage:
        return list(kernel.steps)
    steps = list(kernel.steps)
    if to == Status.RUNNING and kernel.status != Status.CREATING:
        # One report may complete all stages; the agent measures how long the last one, creating, took.
        started = max(since, now - _duration(timings.get("start")))
        steps.append(_step(kernel, agent, stage, since, started))
        stage, since = _STAGES[Status.CREATING], started
    return [*steps, _step(kernel, agent, stage, since, now)]


def step_failed(kernel: Kernel, agent: str, code: str, message: str, *, now: datetime) -> list[Step]:
    """Return the kernel's steps including the failed one."""
    stage = _STAGES.get(Status(kernel.status), "run")
    failed = _step(kernel, agent, stage, kernel.changed_at, now)
    text = Message.joined([Message.of(failed["message"]), message], ". ")
    failed |= {"result": str(Outcome.FAILURE), "error_code": code, "message": for_json(text)}
    return [*kernel.steps, failed]


def steps_of(kernels: Iterable[Kernel]) -> str:
    """Return the steps of all kernels as stored text, the main kernel's first."""
    return json.dumps([step for kernel in kernels for step in kernel.steps])


def full_steps(record: SchedulingRecord) -> list[Step]:
    """Return a history row's steps with all fields. A step without times gets the row's times. A step that is stored as
    a pair has passed: the pair is its name and message."""
    usual = {
        "step": "",
        "result": str(Outcome.SUCCESS),
        "message": "",
        "error_code": "",
        "started_at": record.created_at.isoformat(),
        "ended_at": record.updated_at.isoformat(),
    }
    steps = [{"step": step[0], "message": step[1]} if isinstance(step, list) else step for step in record.sub_steps]
    found = [usual | step for step in steps if isinstance(step, dict)]
    return [step | {"message": Message.of(step["message"])} for step in found]


def _step(kernel: Kernel, agent: str, stage: str, start: datetime, end: datetime) -> Step:
    took = f"{max(0.0, (end - start).total_seconds()):.1f}"
    message = Message("{hostname} on {agent}: {seconds} s", hostname=kernel.hostname, agent=agent, seconds=took)
    return {
        "step": stage,
        "result": str(Outcome.SUCCESS),
        "error_code": "",
        "message": for_json(message),
        "started_at": start.isoformat(),
        "ended_at": end.isoformat(),
    }


def _duration(seconds: float | None) -> timedelta:
    if seconds is None or not math.isfinite(seconds):
        return timedelta(0)
    return timedelta(seconds=min(max(seconds, 0.0), _LONGEST_SECONDS))
