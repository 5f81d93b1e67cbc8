"""What the scheduler decides: placements and waits, each wait with its reason as data.

What there is one of for every session is a named tuple: a pass makes tens of thousands, and they cost a third.
Where it makes them, ``new_tuple`` with every field in order takes a third again, for it leaves out a Python call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something does not happen: a stable kebab-case code, one plain sentence, and its numbers (JSON values).

    ``never``: waiting cannot help as things stand (bigger than any registered agent). ``until``: when it will end.
    """

    code: str
    message: str
    details: dict[str, object] = field(default_factory=dict)
    never: bool = False
    until: datetime | None = None


class Step(NamedTuple):
    """One thing the scheduler looked at on the way to its decision about a session."""

    step: str
    passed: bool
    message: str
    code: str = ""


new_tuple = tuple.__new__

DeviceShares = Mapping[str, Mapping[str, int]]  # slot → device id → thousandths
_NO_DEVICES: Mapping[UUID, DeviceShares] = {}


class Placement(NamedTuple):
    """Start this session: kernel id → agent id, for every kernel; and which devices each kernel gets, if any."""

    session_id: UUID
    kernels: dict[UUID, UUID]
    steps: tuple[Step, ...] = ()
    devices: Mapping[UUID, DeviceShares] = _NO_DEVICES


class Wait(NamedTuple):
    """Leave this session pending; ``position`` counts from 1 in the order of the pass.

    ``tried``: it was its turn and it did not fit, which counts as a try. ``overtaken``: it was tried so often that
    others may pass it; since when must be remembered until it is placed, for the cap on overtaking.
    """

    session_id: UUID
    reason: Reason
    position: int
    steps: tuple[Step, ...] = ()
    tried: bool = False
    overtaken: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome of one pass over one resource group. ``next_agent``: where round-robin goes on."""

    placements: tuple[Placement, ...] = ()
    waits: tuple[Wait, ...] = ()
    next_agent: str = ""
