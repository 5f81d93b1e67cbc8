"""Makes the plan of a pass so that one faulty session does not affect the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from backendai.scheduler.decide import decide
from backendai.scheduler.plan import Plan
from backendai.scheduler.snapshot import SessionView, Snapshot


class WrongRules(Exception):
    """The group's strategies or their options are invalid, whatever sessions are pending."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan. ``snapshot``: its input, without the sessions in ``faults``, on which the decision fails."""

    plan: Plan
    snapshot: Snapshot
    faults: tuple[tuple[SessionView, Exception], ...] = ()


def decide_apart(snapshot: Snapshot) -> Decision:
    """Return the plan, without the sessions on which the decision fails. Raises WrongRules, or the original error if no
    single session causes the failure."""
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
    """Return the sessions that fail on their own, found by bisection."""
    try:
        decide(replace(snapshot, pending=tuple(sessions)))
    except Exception as error:
        if len(sessions) == 1:
            return [(sessions[0], error)]
        half = len(sessions) // 2
        return _faults(snapshot, sessions[:half]) + _faults(snapshot, sessions[half:])
    return []
