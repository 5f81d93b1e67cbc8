"""What decides whose turn comes first: a sequence orders the pending sessions of one priority.

A sequence is one function in one file of ``sequences``, chosen by its name. It gets a ``Line`` and returns or yields
the sessions of the line, each once. One that yields is asked for the next session only after the last one was placed or
refused, so it can look at ``Line.tally`` anew each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from operator import attrgetter

from backendai.scheduler.options import Option, own_options
from backendai.scheduler.snapshot import AgentView, Rules, SessionView, Snapshot

Amounts = tuple[tuple[str, int], ...]


class Tally:
    """What users hold in the group as the pass goes.

    ``latest``: what was placed at the last turn, empty when it found no room; a sequence that follows it empties it
    before each turn. ``held``: by user, at the start of the pass; the sequence that follows counts on in it.
    """

    __slots__ = ("held", "latest")

    def __init__(self, held: Mapping[str, Mapping[str, int]]) -> None:
        self.held: dict[str, dict[str, int]] = {user: dict(slots.items()) for user, slots in held.items()}
        self.latest: Amounts = ()


@dataclass(frozen=True, slots=True)
class Line:
    """The sessions of one priority, the oldest first, and what a sequence may look at.

    ``capacity``: what the agents that are alive and schedulable have together. ``weights`` (missing: 1) and
    ``past_usage`` (missing: none): by key of a holder. ``options``: those of the sequence, each with its value.
    """

    now: datetime
    sessions: list[SessionView]
    rules: Rules
    capacity: Mapping[str, int]
    tally: Tally
    weights: Mapping[str, float]
    past_usage: Mapping[str, float]
    options: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Sequence:
    """A way to order a line. ``label`` is one line for forms.

    ``is_strict``: a session that finds no room holds back everybody behind it. Otherwise it holds back those of lower
    priority only.
    """

    name: str
    label: str
    order: Callable[[Line], Iterable[SessionView]]
    is_strict: bool = False
    options: tuple[Option, ...] = ()


def turns(sequence: Sequence, snapshot: Snapshot, tally: Tally) -> Iterator[SessionView]:
    """Yield every pending session when its turn comes: by priority, then as the sequence orders them.

    Raises ValueError for a wrong option. That each comes once is the sequence's word: whoever asks looks at that.
    """
    options = own_options(sequence.options, snapshot.rules.options)
    capacity = capacity_of(snapshot.agents)
    return chain.from_iterable(
        sequence.order(
            Line(snapshot.now, line, snapshot.rules, capacity, tally, snapshot.weights, snapshot.past_usage, options)
        )
        for line in _bands(snapshot.pending)
    )


def capacity_of(agents: Iterable[AgentView]) -> dict[str, int]:
    """Return what the agents that are alive and schedulable have together."""
    total: dict[str, int] = {}
    for agent in agents:
        if agent.alive and agent.schedulable:
            for name, amount in agent.capacity.items():
                total[name] = total.get(name, 0) + amount
    return total


def is_tired(session: SessionView, rules: Rules) -> bool:
    """Return whether the session was tried so often that others may pass it, were it not for ``is_overdue``."""
    return 0 < rules.retries_to_skip <= session.attempts


def is_overdue(session: SessionView, rules: Rules, now: datetime) -> bool:
    """Return whether others have passed the session for so long that they may not any more."""
    return session.overtaken_since is not None and now - session.overtaken_since >= rules.overtaking_limit


def may_be_passed(session: SessionView, rules: Rules, now: datetime) -> bool:
    """Return whether the session goes behind the others of its priority and holds back nobody."""
    return is_tired(session, rules) and not is_overdue(session, rules, now)


def _bands(pending: Iterable[SessionView]) -> Iterator[list[SessionView]]:
    """Yield the sessions of each priority, the highest first; within one the oldest first, then by id."""
    bands: dict[int, list[SessionView]] = {}
    for session in pending:
        bands.setdefault(session.priority, []).append(session)
    for priority in sorted(bands, reverse=True):
        yield sorted(bands[priority], key=_age)


_age = attrgetter("created_at", "id")
