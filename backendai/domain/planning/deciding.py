"""Makes the plan of a pass so that one faulty session does not affect the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from backendai.scheduler.decide import decide
from backendai.scheduler.plan import Plan
from backendai.scheduler.snapshot import SessionView, Snapshot


class WrongRules(Exception):
    """The group's strategies are invalid for any session."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan, made without the sessions for which ``decide`` raises. ``faults``: these sessions with the errors.
    ``snapshot``: the plan's input, without these sessions."""

    plan: Plan
    snapshot: Snapshot
    faults: tuple[tuple[SessionView, Exception], ...] = ()


def decide_apart(snapshot: Snapshot) -> Decision:
    """Return the plan, made without the sessions for which ``decide`` raises. Raises WrongRules, or the original error
    if no single session causes it."""
    try:
        return Decision(decide(snapshot), snapshot)
    except Exception:
        try:
            decide(replace(snapshot, pending=()))
        except ValueError as wrong:
            raise WrongRules(str(wrong)) from wrong
        faults = _faults(snapshot, snapshot.pending)
        if not faults:
            raise
    bad = {session.id for session, _ in faults}
    sound = replace(snapshot, pending=tuple(one for one in snapshot.pending if one.id not in bad))
    return Decision(decide(sound), sound, tuple(faults))


def _faults(snapshot: Snapshot, sessions: Sequence[SessionView]) -> list[tuple[SessionView, Exception]]:
    """Return the sessions for which ``decide`` raises even without the others, with the errors. Found by bisection;
    empty if only combinations fail."""
    try:
        decide(replace(snapshot, pending=tuple(sessions)))
    except Exception as error:
        if len(sessions) == 1:
            return [(sessions[0], error)]
        half = len(sessions) // 2
        return _faults(snapshot, sessions[:half]) + _faults(snapshot, sessions[half:])
    return []
