"""The kinds of sessions and the features of each, in one table for the whole platform. A new kind is a new row."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class EndedBy(Enum):
    """The event that ends a session of a kind."""

    OWNER = "its owner"
    PROGRAM = "the end of its program"
    ENDPOINT = "its endpoint"
    DISUSE = "nobody being connected"


@dataclass(frozen=True, slots=True)
class SessionKind:
    """One kind of sessions and its features.

    - ``is_launched``: the launch form has a tab for it.
    - ``executes_code``: clients can send code to run.
    - ``has_services``: browsers can open its ports.
    - ``has_dependencies``: it can wait for the success of other sessions.
    - ``has_result``: it ends with success or failure.
    - ``clusters``: it can have several kernels.
    - ``is_saved``: it can be saved as an image.
    - ``stops``: it can be stopped and resumed.
    - ``stops_by_choice``: it can if its launch says so: its program ends, and begins again.
    - ``runs_again``: it can restart on another agent.
    - ``is_served``: it is a replica of an endpoint.
    - ``is_checked``: idle checkers can check it.
    - ``is_usually_checked``: checkers without a list of kinds check it.
    - ``has_shell``: programs can be started in it; otherwise it serves files only.
    - ``counts``: it counts to the limits of policies and to fair shares; otherwise the kind has its own limit.
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
    stops: bool = False
    stops_by_choice: bool = False
    runs_again: bool = False
    is_served: bool = False
    is_checked: bool = True
    is_usually_checked: bool = False
    has_shell: bool = True
    counts: bool = True

    @property
    def runs_program(self) -> bool:
        """Whether the session ends with its command. It can then have a time limit and a start time, and its command
        never runs twice unless the owner allowed that."""
        return self.ended_by is EndedBy.PROGRAM

    @property
    def takes_command(self) -> bool:
        """Whether a command can be the session's main program. Otherwise the session continues after the end of all
        programs."""
        return self.ended_by in (EndedBy.PROGRAM, EndedBy.ENDPOINT)

    @property
    def is_worked_in(self) -> bool:
        """Whether people work in the session interactively: it opens after the launch, with its terminal first."""
        return self.ended_by is EndedBy.OWNER


_TABLE = (
    SessionKind("interactive", EndedBy.OWNER, executes_code=True, is_saved=True, stops=True, is_usually_checked=True),
    SessionKind(
        "batch", EndedBy.PROGRAM, has_dependencies=True, has_result=True, stops_by_choice=True, runs_again=True
    ),
    # Not checked: a replica that an idle checker ends would only be replaced.
    SessionKind("inference", EndedBy.ENDPOINT, is_launched=False, is_served=True, is_checked=False),
    # A small, short-lived session that opens folders for file clients and computes nothing.
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
    """Return the name and label of each session kind that people can launch."""
    return [(kind.name, kind.name) for kind in _TABLE if kind.is_launched]


def kinds_with(feature: str) -> list[str]:
    """Return the names of the kinds that have this feature, an attribute of ``SessionKind``."""
    return [kind.name for kind in _TABLE if getattr(kind, feature)]
