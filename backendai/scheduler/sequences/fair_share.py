"""Sequence ``fair-share``: sessions of domains, then projects, then users with the lowest recent usage come first.

A holder's factor is 2^(−past usage / weight): 1 without usage, 0.5 at exactly the weighted share. Usage / weight is
compared instead, because small factors would be rounded to 0.
"""

from __future__ import annotations

from math import inf

from backendai.base.core.messages import Message
from backendai.scheduler.sequence import Line, Sequence
from backendai.scheduler.snapshot import Holder, SessionView


def fair_share(line: Line) -> list[SessionView]:
    """Return the sessions sorted by the factors of domain, then project, then user, the largest first. Of equal factors
    the oldest session comes first, then the smallest id. Sessions without a domain, project or user come last."""
    burdens: dict[Holder, tuple[float, ...]] = {}
    for session in line.sessions:
        if session.holder not in burdens:
            burdens[session.holder] = _burdens(line, session.holder)
    return sorted(line.sessions, key=lambda session: burdens[session.holder])  # keeps the order by age


def factor(usage: float, weight: float) -> float:
    """Return a holder's fair-share factor, from 0 to 1: the less it has used for its weight, the higher. Without a
    weight it is 0."""
    return float(2.0 ** -(usage / weight)) if weight > 0 else 0.0


def _burdens(line: Line, holder: Holder) -> tuple[float, ...]:
    return tuple(_burden(line, key) for key in (holder.domain, holder.project, holder.user))


def _burden(line: Line, key: str) -> float:
    weight = line.weights.get(key, 1.0)
    if not key or weight <= 0:
        return inf
    return line.past_usage.get(key, 0.0) / weight


SEQUENCE = Sequence("fair-share", Message("fair share over time: who used least lately first"), fair_share)
