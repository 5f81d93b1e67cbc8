"""Runs one scheduler pass over one resource group, and handles its errors.

A fault of one session, or of a group's rules, becomes the wait reason of the affected sessions, with an id that refers
to the log. Other sessions are not affected.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import InterfaceError, OperationalError

from backendai.base.core.messages import Message
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.placing.waits import Waiting, note_waits
from backendai.domain.planning.apply import apply_plan
from backendai.domain.planning.beyond import waits_beyond
from backendai.domain.planning.deciding import WrongRules, decide_apart
from backendai.domain.planning.preempting import give_way
from backendai.domain.planning.queue import MOST_PER_PASS, order_of
from backendai.domain.planning.snapshot import read_group
from backendai.scheduler.snapshot import Snapshot

logger = logging.getLogger(__name__)

_logged: set[str] = set()  # ids of errors that this process has logged with their traceback


def schedule(group: ResourceGroup, now: datetime) -> int:
    """Run one pass over the group; returns how many sessions were placed. Faults of single sessions or of the group's
    rules become wait reasons instead of errors, and an unreachable database is logged."""
    try:
        reading = read_group(group, now)
        _note_broken(reading.broken, now)
        placed = _place(group, reading.snapshot, now) if reading.snapshot.pending else 0
        if reading.is_partial:
            note_waits(waits_beyond(group, reading.looked_at, now), now=now)
        return placed
    except WrongRules as error:
        _note_wrong_rules(group, error, now)
    except (OperationalError, InterfaceError) as error:
        # The database is unreachable, or another scheduler keeps the group locked. No wait reason is written, as the
        # next pass comes in seconds.
        logger.warning("the pass over resource group %s is put off: %s", group.name, error)
    except Exception as error:
        _note_failed_pass(group, error, now)
    return 0


def _place(group: ResourceGroup, snapshot: Snapshot, now: datetime) -> int:
    decision = decide_apart(snapshot)
    _note_broken([(session.id, fault) for session, fault in decision.faults], now)
    placed = apply_plan(group, decision.plan, now=now)
    give_way(group, snapshot, decision.plan.waits, now)
    return len(placed)


def _note_broken(broken: Sequence[tuple[UUID, Exception]], now: datetime) -> None:
    waits = []
    for session_id, error in broken:
        name = _log(error, f"the scheduler fails on session {session_id}")
        message = Message(
            "The scheduler fails on this session; an administrator finds error {name} in the log.", name=name
        )
        waits.append(Waiting(session_id, "scheduler-error", message, {"error": name, "never": True}, skipped=True))
    note_waits(waits, now=now)


def _note_wrong_rules(group: ResourceGroup, error: Exception, now: datetime) -> None:
    _log(error, f"the rules of resource group {group.name} cannot be followed")
    message = Message(
        "The rules of resource group {group} cannot be applied: {error}. An administrator must correct them.",
        group=group.name,
        error=error,
    )
    data = {"sequence": group.sequence, "selection": group.selection, "never": False}
    _note_all(group, "wrong-group-rules", message, data, now)


def _note_failed_pass(group: ResourceGroup, error: Exception, now: datetime) -> None:
    name = _log(error, f"the pass over resource group {group.name} failed")
    message = Message(
        "The scheduler fails in resource group {group}; an administrator finds error {name} in the log.",
        group=group.name,
        name=name,
    )
    _note_all(group, "scheduler-error", message, {"error": name, "never": False}, now)


def _note_all(group: ResourceGroup, code: str, message: str, data: dict[str, object], now: datetime) -> None:
    pending = ComputeSession.objects.pending().filter(resource_group=group).order_by(*order_of(group.sequence))
    ids = pending.values_list("pk", flat=True)[:MOST_PER_PASS]
    try:
        note_waits([Waiting(pk, code, message, data, skipped=True) for pk in ids], now=now)
    except Exception:  # most likely the database is unreachable, which also made the pass fail
        logger.exception("why the sessions of resource group %s wait could not be written", group.name)


def _log(error: Exception, what: str) -> str:
    """Log the error and return its id. Equal errors have equal ids, so that a wait reason does not change at each
    pass."""
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    place = f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}" if trace else ""
    name = hashlib.sha256(f"{type(error).__name__} {error} {place}".encode()).hexdigest()[:8]
    if name in _logged:
        logger.warning("error %s again: %s", name, what)
    else:
        _logged.add(name)
        logger.error("error %s: %s", name, what, exc_info=error)
    return name
