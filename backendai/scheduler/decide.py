"""Runs one pass over one resource group: decides which pending sessions start, where, and why the others wait."""

from __future__ import annotations

from backendai.scheduler.explaining.shortfall import Refusal
from backendai.scheduler.plan import Plan
from backendai.scheduler.progress import Progress, Shape
from backendai.scheduler.queueing import Queue
from backendai.scheduler.sequence import turns
from backendai.scheduler.snapshot import SessionView, Snapshot
from backendai.scheduler.strategies import check_rules, sequence_named


def decide(snapshot: Snapshot, *, explains: bool = True) -> Plan:
    """Return a placement or a wait for every pending session. The same snapshot always gives the same plan.

    ``explains=False``: sessions that lack room share a reason without text, which saves a third of a full group's time.
    Raises ValueError for an unknown strategy, and a sequence that does not return each session once.
    """
    rules = snapshot.rules
    check_rules(rules.sequence, rules.selection)
    sequence = sequence_named(rules.sequence)
    progress = Progress(snapshot, explains=explains)
    queue = Queue(snapshot, sequence, progress)
    free, gated = progress.shapes()
    # 1. Order: which session is tried first.
    for turn, session in enumerate(turns(sequence, snapshot, progress.tally), 1):
        # 2. Gates: checks that do not depend on free amounts.
        # 3. Capacity: whether the session could start if every agent were empty.
        shape = free.pop(id(session), None)
        if shape is not None:
            refusal = shape.hopeless
        else:
            shape = _of(session, gated, rules.sequence)
            refusal = progress.barred(session, shape)
        # 4. Queue: whether a session ahead holds it back.
        refusal = refusal or (queue.held_back(session) if queue.holds_back else None)
        if refusal is not None:
            progress.wait(session, refusal, turn)
            continue
        if queue.is_settled and shape.no_room is not None:  # where the cluster is full, most sessions end here
            progress.wait(session, shape.no_room, turn, tried=shape.lacks_room)
            continue
        # 5. Place: the best agents for all its kernels, or for none.
        outcome = queue.place(session, shape)
        if not isinstance(outcome, Refusal):
            progress.start(session, shape, outcome, turn)
            continue
        # 6. Record the reason, and keep sessions behind it from taking the slots for which it waits.
        refusal, tried = queue.wait_for_room(session, shape, outcome)
        progress.wait(session, refusal, turn, tried=tried)
    _check_nobody_is_left(len(free) + len(gated), snapshot)
    return progress.plan()


def _of(session: SessionView, left: dict[int, Shape], sequence: str) -> Shape:
    shape = left.pop(id(session), None)
    if shape is None:
        raise ValueError(f"sequence {sequence} names session {session.id} twice, or it is not in the line")
    return shape


def _check_nobody_is_left(left: int, snapshot: Snapshot) -> None:
    if left:
        of = len(snapshot.pending)
        raise ValueError(f"sequence {snapshot.rules.sequence} leaves out {left} of {of} sessions")
