"""The scheduler's decisions: placements and waits, each wait with its reason as data.

Objects that exist once per session are flat named tuples: a pass creates tens of thousands. Creating them by
``new_tuple`` with all fields in order avoids a Python call and a third of the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from backendai.base.core.messages import Message


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason why something does not happen: a stable kebab-case code, one sentence, and its numbers (JSON values).

    ``never``: waiting cannot help, as the session is larger than any registered agent. ``until``: when the obstacle
    ends. ``aside``: a further sentence for explanations; it is not stored, as it changes with every pass.
    """

    code: str
    message: str
    details: dict[str, object] = field(default_factory=dict)
    never: bool = False
    until: datetime | None = None
    aside: str = ""
    aside_details: dict[str, object] = field(default_factory=dict)


class Step(NamedTuple):
    """One check that led to the scheduler's decision about a session."""

    step: str
    passed: bool
    message: str
    code: str = ""


class Pass(NamedTuple):
    """The numbers and names of a pass that the messages about all its sessions use."""

    pending: int = 0
    sequence: str = ""
    selection: str = ""


class Trail(NamedTuple):
    """The checks that led to a decision about a session. Their texts are made when they are read. ``shared``: steps
    that are the same for all sessions with the same request. ``chosen``: names of the chosen agents, each with the
    number of better ranked agents without room."""

    turn: int
    within: Pass
    shared: tuple[Step, ...]
    chosen: tuple[tuple[str, int], ...] = ()

    @property
    def in_turn(self) -> str:
        """One sentence about the session's position in the order of the pass."""
        return Message(
            "Position {turn} of {pending} in the order {sequence}.",
            turn=self.turn,
            pending=self.within.pending,
            sequence=self.within.sequence,
        )

    @property
    def own(self) -> tuple[Step, ...]:
        """The steps that name the chosen agents, one for each."""
        selection = self.within.selection
        return tuple(
            [
                Step(
                    "selection",
                    True,
                    Message(
                        "{name}, chosen by the rule {selection}; better ones without free resources: {ahead}.",
                        name=name,
                        selection=selection,
                        ahead=ahead,
                    ),
                )
                for name, ahead in self.chosen
            ]
        )

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps, in order."""
        return Step("sequencing", True, self.in_turn), *self.shared, *self.own


new_tuple = tuple.__new__

DeviceShares = Mapping[str, Mapping[str, int]]  # slot → device id → thousandths
_NO_DEVICES: Mapping[UUID, DeviceShares] = {}
_SOME_PASS = Pass()


class Placement(NamedTuple):
    """The decision to start a session. ``kernel_agents``: pairs of kernel id and agent id. ``devices``: the devices of
    each kernel that has some. The last four fields are the input of ``trail``."""

    session_id: UUID
    kernel_agents: tuple[tuple[UUID, UUID], ...]
    devices: Mapping[UUID, DeviceShares] = _NO_DEVICES
    turn: int = 0
    within: Pass = _SOME_PASS
    shared: tuple[Step, ...] = ()
    chosen: tuple[tuple[str, int], ...] = ()

    @property
    def kernels(self) -> dict[UUID, UUID]:
        """The agent id of each kernel id."""
        return dict(self.kernel_agents)

    @property
    def trail(self) -> Trail:
        """The checks that led to the placement."""
        return Trail(self.turn, self.within, self.shared, self.chosen)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The checks that led to the placement, as steps."""
        return self.trail.steps


class Wait(NamedTuple):
    """A session that remains pending. ``position`` counts from 1 in the order of the pass. ``tried``: the pass tried to
    place it and it did not fit. ``overtaken``: it was tried so often that others may pass it; the caller stores when
    this began, as passing is limited in time. The last three fields are the input of ``trail``."""

    session_id: UUID
    reason: Reason
    position: int
    tried: bool = False
    overtaken: bool = False
    turn: int = 0
    within: Pass = _SOME_PASS
    shared: tuple[Step, ...] = ()

    @property
    def trail(self) -> Trail:
        """The checks that led to the wait."""
        return Trail(self.turn, self.within, self.shared)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The checks that led to the wait, as steps."""
        return self.trail.steps


@dataclass(frozen=True, slots=True)
class Plan:
    """The result of one pass over one resource group. ``next_agent``: the agent at which round-robin continues in the
    next pass."""

    placements: tuple[Placement, ...] = ()
    waits: tuple[Wait, ...] = ()
    next_agent: str = ""
