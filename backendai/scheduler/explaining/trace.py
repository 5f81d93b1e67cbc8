"""Converts the checks of a pass into steps that people can read."""

from __future__ import annotations

from backendai.base.core.messages import Message
from backendai.scheduler.explaining.shortfall import Refusal
from backendai.scheduler.gates import GATES
from backendai.scheduler.plan import Reason, Step

GATES_PASSED = tuple(Step(gate.step, True, gate.passed) for gate in GATES)
CAPACITY_PASSED = (*GATES_PASSED, Step("capacity", True, Message("The agents, when empty, are big enough.")))
QUEUE_PASSED = (*CAPACITY_PASSED, Step("queue", True, Message("No session ahead holds this one back.")))


def at_gate(index: int, reason: Reason) -> Refusal:
    """Return the refusal of a session by the gate with this index."""
    return Refusal(reason, (*GATES_PASSED[:index], _failed(GATES[index].step, reason)))


def at_capacity(reason: Reason) -> Refusal:
    """Return the refusal of a session that could not start on empty agents."""
    return Refusal(reason, (*GATES_PASSED, _failed("capacity", reason)))


def at_queue(reason: Reason) -> Refusal:
    """Return the refusal of a session that another session holds back."""
    return Refusal(reason, (*CAPACITY_PASSED, _failed("queue", reason)))


def at_agents(refusal: Refusal) -> Refusal:
    """Return the refusal of a session that fits on no agent. The steps of gates and queue, which it passed, come
    first."""
    return Refusal(refusal.reason, (*QUEUE_PASSED, *refusal.steps))


def _failed(step: str, reason: Reason) -> Step:
    return Step(step, False, reason.message, reason.code)
