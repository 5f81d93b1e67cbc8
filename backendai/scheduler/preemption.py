"""Chooses running sessions that give way to a pending one of higher priority: as few as possible, the least important
and the shortest runs first.

Whether they free enough is asked of the scheduler itself. No Django, no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from backendai.scheduler.decide import decide
from backendai.scheduler.forecasts.world import Held, with_held
from backendai.scheduler.plan import Wait
from backendai.scheduler.snapshot import AgentView, SessionView, Snapshot

MOST_VICTIMS = 8


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running session that may be stopped: what its kernels hold, and how long it has run."""

    id: UUID
    priority: int
    ran: timedelta
    held: tuple[Held, ...]


class Preemption(NamedTuple):
    """The session for which others give way, and these."""

    beneficiary: SessionView
    victims: tuple[Candidate, ...]


def preempt(
    snapshot: Snapshot, waits: Sequence[Wait], candidates: Collection[Candidate], barred: Collection[UUID]
) -> Preemption | None:
    """Return who gives way to the first session of the queue that waits for room; None if that helps nobody.

    ``barred``: pending sessions for which nobody gives way. At most ``2 * MOST_VICTIMS`` passes over one session.
    """
    pending = {session.id: session for session in snapshot.pending}
    for wait in sorted(waits, key=lambda each: each.position):
        session = pending.get(wait.session_id)
        if session is not None and wait.tried and session.id not in barred:
            victims = _victims(snapshot, session, candidates)
            return Preemption(session, victims) if victims else None
    return None


def _victims(snapshot: Snapshot, session: SessionView, candidates: Collection[Candidate]) -> tuple[Candidate, ...]:
    weaker = [one for one in candidates if one.priority < session.priority]
    agents = {agent.id: agent for agent in snapshot.agents}
    chosen: list[Candidate] = []
    for one in sorted(weaker, key=lambda each: (each.priority, each.ran, each.id)):
        if len(chosen) == MOST_VICTIMS:
            return ()
        chosen.append(one)
        if _starts(snapshot, session, _without(agents, chosen)):
            return _needed(snapshot, session, agents, chosen)
    return ()


def _needed(
    snapshot: Snapshot, session: SessionView, agents: Mapping[UUID, AgentView], chosen: Sequence[Candidate]
) -> tuple[Candidate, ...]:
    """Return the victims without those that free nothing which the session needs, the most important first spared."""
    needed = list(chosen)
    for one in reversed(chosen[:-1]):
        rest = [each for each in needed if each is not one]
        if _starts(snapshot, session, _without(agents, rest)):
            needed = rest
    return tuple(needed)


def _without(agents: Mapping[UUID, AgentView], victims: Sequence[Candidate]) -> dict[UUID, AgentView]:
    freed = dict(agents)
    for held in (held for one in victims for held in one.held):
        if held.agent in freed:
            freed[held.agent] = with_held(freed[held.agent], held, -1)
    return freed


def _starts(snapshot: Snapshot, session: SessionView, agents: Mapping[UUID, AgentView]) -> bool:
    alone = replace(snapshot, agents=tuple(agents.values()), pending=(session,), running=())
    return bool(decide(alone).placements)
