"""The kinds of sessions and what each can do: the one table that every room asks. A new kind is a new row."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class EndedBy(Enum):
    """Who decides that a session of a kind is finished."""

    OWNER = "its owner"
    PROGRAM = "the end of its program"
    ENDPOINT = "its endpoint"


@dataclass(frozen=True, slots=True)
class SessionKind:
    """One kind of sessions. ``is_launched``: people choose it in the launch form, and it has a tab. ``has_services``:
    browsers open its ports. ``has_dependencies``: it may wait for others to succeed. ``has_result``: it ends with
    success or failure. ``is_saved``: it can become an image. ``runs_again``: it may start anew on another agent.
    ``is_served``: it is a replica of an endpoint. ``is_checked``: idle checkers may look at it;
    ``is_usually_checked``: those that name no kinds do."""

    name: str
    ended_by: EndedBy
    is_launched: bool = True
    executes_code: bool = False
    has_services: bool = True
    has_dependencies: bool = False
    has_result: bool = False
    clusters: bool = True
    is_saved: bool = False
    runs_again: bool = False
    is_served: bool = False
    is_checked: bool = True
    is_usually_checked: bool = False

    @property
    def runs_program(self) -> bool:
        """Whether a command of the launch is its main program, with which it ends: it can have a time limit and a start
        time, and is not begun twice unless its owner asked for that."""
        return self.ended_by is EndedBy.PROGRAM

    @property
    def takes_command(self) -> bool:
        """Whether a command can be its main program; else it stays, whatever ends in it."""
        return self.ended_by is not EndedBy.OWNER

    @property
    def is_worked_in(self) -> bool:
        """Whether somebody sits before it: it opens at once, and its terminal is the first thing to offer."""
        return self.ended_by is EndedBy.OWNER


_TABLE = (
    SessionKind("interactive", EndedBy.OWNER, executes_code=True, is_saved=True, is_usually_checked=True),
    SessionKind("batch", EndedBy.PROGRAM, has_dependencies=True, has_result=True, runs_again=True),
    # An idle checker would fight the number of replicas.
    SessionKind("inference", EndedBy.ENDPOINT, is_launched=False, is_served=True, is_checked=False),
)
KINDS: dict[str, SessionKind] = {kind.name: kind for kind in _TABLE}
USUAL_KIND = _TABLE[0]


def kind_choices() -> list[tuple[str, str]]:
    """Return name and label of each kind, for fields of models and forms."""
    return [(name, name) for name in KINDS]


def launched_kinds() -> list[tuple[str, str]]:
    """Return the choices of the kinds that people launch."""
    return [(kind.name, kind.name) for kind in _TABLE if kind.is_launched]


def kinds_with(feature: str) -> list[str]:
    """Return the names of the kinds for which this column, or property, is true."""
    return [kind.name for kind in _TABLE if getattr(kind, feature)]
