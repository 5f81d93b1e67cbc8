"""What the scheduler decides: placements and waits, each wait with its reason as data.

What there is one of for every session is a named tuple, without one inside it: a pass makes tens of thousands, and they
cost a third. Where it makes them, ``new_tuple`` with every field in order takes a third again, for it leaves out a
Python call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from backendai.core.messages import Message


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something does not happen: a stable kebab-case code, one plain sentence, and its numbers (JSON values).

    ``never``: waiting cannot help as things stand (bigger than any registered agent). ``until``: when it will end.
    ``aside`` is one more sentence, with numbers, for whoever asks now; it is not kept with the sessions that wait, for
    it would have to be written anew for all of them with every turn of the queue.
    """

    code: str
    message: str
    details: dict[str, object] = field(default_factory=dict)
    never: bool = False
    until: datetime | None = None
    aside: str = ""
    aside_details: dict[str, object] = field(default_factory=dict)


class Step(NamedTuple):
    """One thing the scheduler looked at on the way to its decision about a session."""

    step: str
    passed: bool
    message: str
    code: str = ""


class Pass(NamedTuple):
    """What the words about all sessions of a pass have in common."""

    pending: int = 0
    sequence: str = ""
    selection: str = ""


class Trail(NamedTuple):
    """What the scheduler looked at on the way to its decision about a session; the words are made when asked for.

    ``shared``: what it found for all sessions that ask for the same and end the same way. ``chosen``: the agents that
    it chose for this one, each with how many better ranked ones lacked room.
    """

    turn: int
    within: Pass
    shared: tuple[Step, ...]
    chosen: tuple[tuple[str, int], ...] = ()

    @property
    def in_turn(self) -> str:
        """Whose turn it was, in words."""
        return Message(
            "Position {turn} of {pending} in the order {sequence}.",
            turn=self.turn,
            pending=self.within.pending,
            sequence=self.within.sequence,
        )

    @property
    def own(self) -> tuple[Step, ...]:
        """The agents that it chose, in words."""
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
        """All of it, in order."""
        return Step("sequencing", True, self.in_turn), *self.shared, *self.own


new_tuple = tuple.__new__

DeviceShares = Mapping[str, Mapping[str, int]]  # slot → device id → thousandths
_NO_DEVICES: Mapping[UUID, DeviceShares] = {}
_SOME_PASS = Pass()


class Placement(NamedTuple):
    """Start this session: kernel id and agent id, for every kernel; and which devices each kernel gets, if any.

    The last four fields are those of its ``trail``.
    """

    session_id: UUID
    seats: tuple[tuple[UUID, UUID], ...]
    devices: Mapping[UUID, DeviceShares] = _NO_DEVICES
    turn: int = 0
    within: Pass = _SOME_PASS
    shared: tuple[Step, ...] = ()
    chosen: tuple[tuple[str, int], ...] = ()

    @property
    def kernels(self) -> dict[UUID, UUID]:
        """By kernel id, the agent's."""
        return dict(self.seats)

    @property
    def trail(self) -> Trail:
        """What the scheduler looked at."""
        return Trail(self.turn, self.within, self.shared, self.chosen)

    @property
    def steps(self) -> tuple[Step, ...]:
        """What the scheduler looked at."""
        return self.trail.steps


class Wait(NamedTuple):
    """Leave this session pending; ``position`` counts from 1 in the order of the pass.

    ``tried``: it was its turn and it did not fit, which counts as a try. ``overtaken``: it was tried so often that
    others may pass it; since when must be remembered until it is placed, for the cap on overtaking. The last three
    fields are those of its ``trail``.
    """

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
        """What the scheduler looked at."""
        return Trail(self.turn, self.within, self.shared)

    @property
    def steps(self) -> tuple[Step, ...]:
        """What the scheduler looked at."""
        return self.trail.steps


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome of one pass over one resource group. ``next_agent``: where round-robin goes on."""

    placements: tuple[Placement, ...] = ()
    waits: tuple[Wait, ...] = ()
    next_agent: str = ""
