"""The kinds of sessions and what each can do: the one table that every room asks. A new kind is a new row."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class EndedBy(Enum):
    """What ends a session of a kind."""

    OWNER = "its owner"
    PROGRAM = "the end of its program"
    ENDPOINT = "its endpoint"
    DISUSE = "nobody being connected"


@dataclass(frozen=True, slots=True)
class SessionKind:
    """One kind of sessions and its features.

    ``is_launched``: offered in the launch form, with a tab of its own. ``executes_code``: clients can send it code to
    run. ``has_services``: browsers can open its ports. ``has_dependencies``: it may wait until other sessions succeed.
    ``has_result``: it ends with success or failure. ``clusters``: it may have several kernels. ``is_saved``: it can be
    saved as an image. ``runs_again``: it may restart on another agent. ``is_served``: it is a replica of an endpoint.
    ``is_checked``: idle checkers may check it; ``is_usually_checked``: checkers that list no kinds do. ``has_shell``:
    programs can be started in it; else it serves files only. ``counts``: policies and shares count it; else it has a
    limit of its own.
    """

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
    has_shell: bool = True
    counts: bool = True

    @property
    def runs_program(self) -> bool:
        """Whether the session ends with its command: then it may have a time limit and a start time, and its command
        never runs twice unless the owner allowed it."""
        return self.ended_by is EndedBy.PROGRAM

    @property
    def takes_command(self) -> bool:
        """Whether a command may be its main program; else the session outlives all its programs."""
        return self.ended_by in (EndedBy.PROGRAM, EndedBy.ENDPOINT)

    @property
    def is_worked_in(self) -> bool:
        """Whether people work in it interactively: it opens at once, with its terminal first."""
        return self.ended_by is EndedBy.OWNER


_TABLE = (
    SessionKind("interactive", EndedBy.OWNER, executes_code=True, is_saved=True, is_usually_checked=True),
    SessionKind("batch", EndedBy.PROGRAM, has_dependencies=True, has_result=True, runs_again=True),
    # An idle checker would fight the number of replicas.
    SessionKind("inference", EndedBy.ENDPOINT, is_launched=False, is_served=True, is_checked=False),
    # Small and short-lived: it opens folders to clients of files and computes nothing.
    SessionKind(
        "system",
        EndedBy.DISUSE,
        is_launched=False,
        has_services=False,
        clusters=False,
        is_checked=False,
        has_shell=False,
        counts=False,
    ),
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
    """Return the names of the kinds for which this attribute of ``SessionKind`` is true."""
    return [kind.name for kind in _TABLE if getattr(kind, feature)]
