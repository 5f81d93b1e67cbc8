"""Sequences: strategies that order the pending sessions of one priority.

Each sequence is a function in a file of ``sequences``, chosen by its name. It gets a ``Line`` and returns or yields
each session of the line once. A generator continues only after the last session was placed or refused, so it can read
the updated ``Line.tally``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from operator import attrgetter

from backendai.scheduler.snapshot import AgentView, Rules, SessionView, Snapshot

Amounts = tuple[tuple[str, int], ...]


class UserHoldings:
    """How much each user holds in the group while the pass runs.

    ``held``: by user; at first the amounts before the pass. ``latest``: the amounts of the session just tried, set by
    the scheduler when it places the session. A sequence that needs these numbers empties ``latest`` before it yields a
    session, and adds ``latest`` to ``held`` afterwards.
    """

    __slots__ = ("held", "latest")

    def __init__(self, held: Mapping[str, Mapping[str, int]]) -> None:
        self.held: dict[str, dict[str, int]] = {user: dict(slots.items()) for user, slots in held.items()}
        self.latest: Amounts = ()


@dataclass(frozen=True, slots=True)
class Line:
    """The input of a sequence: the sessions of one priority, the oldest first.

    ``capacity``: the sum over all reachable, schedulable agents. ``weights`` (default 1) and ``past_usage`` (default
    0): by the holder's key.
    """

    now: datetime
    sessions: list[SessionView]
    rules: Rules
    capacity: Mapping[str, int]
    tally: UserHoldings
    weights: Mapping[str, float]
    past_usage: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Sequence:
    """A strategy for ordering sessions. ``label``: one line for forms. ``is_strict``: a session that does not fit holds
    back all sessions behind it; otherwise it holds back only sessions of lower priority."""

    name: str
    label: str
    order: Callable[[Line], Iterable[SessionView]]
    is_strict: bool = False


def turns(sequence: Sequence, snapshot: Snapshot, tally: UserHoldings) -> Iterator[SessionView]:
    """Yield every pending session in scheduling order: by priority, then by the sequence.

    The caller checks that each session is yielded once.
    """
    capacity = capacity_of(snapshot.agents)
    return chain.from_iterable(
        sequence.order(Line(snapshot.now, line, snapshot.rules, capacity, tally, snapshot.weights, snapshot.past_usage))
        for line in _bands(snapshot.pending)
    )


def capacity_of(agents: Iterable[AgentView]) -> dict[str, int]:
    """Return the total capacity of all reachable, schedulable agents, by slot."""
    total: dict[str, int] = {}
    for agent in agents:
        if agent.alive and agent.schedulable:
            for name, amount in agent.capacity.items():
                total[name] = total.get(name, 0) + amount
    return total


def is_tired(session: SessionView, rules: Rules) -> bool:
    """Return whether the session's failed tries exceed the group's threshold, so that others can pass it.
    ``is_overdue`` limits for how long."""
    return 0 < rules.retries_to_skip < session.attempts


def is_overdue(session: SessionView, rules: Rules, now: datetime) -> bool:
    """Return whether other sessions have passed the session for as long as the group allows."""
    return session.overtaken_since is not None and now - session.overtaken_since >= rules.overtaking_limit


def may_be_passed(session: SessionView, rules: Rules, now: datetime) -> bool:
    """Return whether other sessions can pass the session after too many attempts. Such a session comes last in its
    priority and holds back no others."""
    return is_tired(session, rules) and not is_overdue(session, rules, now)


def _bands(pending: Iterable[SessionView]) -> Iterator[list[SessionView]]:
    """Yield the sessions of each priority, the highest priority first. Within a priority they are sorted by age, then
    by id."""
    bands: dict[int, list[SessionView]] = {}
    for session in pending:
        bands.setdefault(session.priority, []).append(session)
    for priority in sorted(bands, reverse=True):
        yield sorted(bands[priority], key=_age)


_age = attrgetter("created_at", "id")
