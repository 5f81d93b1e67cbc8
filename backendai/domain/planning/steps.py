"""Converts steps of history rows between their stored and their displayed form. If all gates passed, one step is
stored."""

from __future__ import annotations

from typing import Any

from backendai.base.core.messages import Message, values_of
from backendai.domain.compute.models import SchedulingRecord
from backendai.domain.compute.services.status.steps import full_steps
from backendai.scheduler.explaining.trace import GATES_PASSED
from backendai.scheduler.gates import GATES
from backendai.scheduler.plan import Step

_GATES = "gates"
_PASSED = "passed: "
_ALL_GATES = Step(_GATES, True, Message("passed: {names}", names=[gate.step for gate in GATES]))
_TEXTS = {gate.step: gate.passed for gate in GATES}


def short_steps(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps for storage. If all gates passed, their steps become one."""
    passed = len(GATES_PASSED)
    return (_ALL_GATES, *steps[passed:]) if steps[:passed] == GATES_PASSED else steps


def shown_steps(record: SchedulingRecord) -> list[dict[str, Any]]:
    """Return the steps of a history row with all fields, and one step for each gate."""
    steps = [each for step in full_steps(record) for each in (_gates_of(step) if step["step"] == _GATES else [step])]
    return [step | {"values": values_of(step["message"])} for step in steps]


def messages_of(record: SchedulingRecord) -> list[str]:
    """Return the messages of a history row and of its steps."""
    return [record.message, *(step["message"] for step in shown_steps(record))]


def _gates_of(step: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the steps of gates that existed when the row was written and still exist."""
    message = step["message"]  # older rows have no values, only text
    names = message.values.get("names") or str(message).removeprefix(_PASSED).split(", ")
    return [step | {"step": name, "message": _TEXTS.get(name, "")} for name in names]
