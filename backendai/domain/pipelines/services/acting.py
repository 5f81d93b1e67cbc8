"""Carrying out what was decided about runs; one that fails does not keep the others from their turn."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import F

from backendai.base.core.messages import Message
from backendai.base.db.bulk import among, update_rows
from backendai.domain.compute.services.life.ending import end_sessions
from backendai.domain.compute.services.status.moves import StatusCause
from backendai.domain.compute.status import LIVE, Phase
from backendai.domain.compute.status import Status as SessionStatus
from backendai.domain.pipelines.documents.secrets import without_values
from backendai.domain.pipelines.hints import hint_runs
from backendai.domain.pipelines.models import Run, State, Status, Step, Task
from backendai.domain.pipelines.moves import grow, move_run, move_tasks
from backendai.domain.pipelines.reading import RunsReading
from backendai.domain.pipelines.services.releasing import release
from backendai.scheduler.runs.decide import decide_run
from backendai.scheduler.runs.snapshot import FINAL, UNPLACED_PER_OWNER, Decision, RunStatus, RunView, When

logger = logging.getLogger(__name__)
_CAN_END = LIVE - {SessionStatus.TERMINATING}


def act(reading: RunsReading) -> int:
    """Decide about each run and carry it out; returns how many changed. A launch that is refused changes nothing: the
    loop is not woken for it."""
    changed = 0
    for pk, view in reading.views.items():
        run = reading.runs[pk]
        room = UNPLACED_PER_OWNER - reading.unplaced[run.owner_id]
        try:
            decision = decide_run(replace(view, room=room), reading.now)
            if decision.is_empty:
                continue
            has_settled = _settled(run, decision, reading)
            launched = _launched(run, decision, reading) if decision.release else 0
            reading.unplaced[run.owner_id] += launched
            changed += bool(has_settled or launched)
            reading.has_more |= has_settled and _opens_more(view, decision)
        except Exception:
            logger.exception("run %s could not be brought forward by this pass", pk)
    return changed


def _opens_more(view: RunView, decision: Decision) -> bool:
    """Return whether the next pass may find elements that this one did not know as ready: those that are tried again at
    once, and those that wait for one element. Whole steps are opened by the decision that ends those before them."""
    return bool(decision.retry) or any(edge.when == When.EACH for step in view.steps for edge in step.edges)


def _settled(run: Run, decision: Decision, reading: RunsReading) -> bool:
    """Carry out all but the launches and return whether something changed; nothing does if the run has since."""
    if not (decision.settle or decision.retry or decision.close or decision.stops or decision.end):
        return False
    with transaction.atomic():
        if not grow(run.pk, run.version, Status(run.status)):
            return False
        run.version += 1
        _settle(decision, [step for step in reading.steps.values() if step.run_id == run.pk], reading.now)
        stopped = _stop(run, reading.now) if decision.stops else 0
        if decision.end:
            _end(run, decision.end, reading.now)
    return bool(stopped or decision.settle or decision.retry or decision.close or decision.end)


def _launched(run: Run, decision: Decision, reading: RunsReading) -> int:
    """Return how many sessions were launched; none if the run is another than was decided about."""
    return release(run, run.version, decision.release, reading.now)


def _settle(decision: Decision, steps: Iterable[Step], now: datetime) -> None:
    groups: dict[tuple[str, str], list[UUID]] = defaultdict(list)
    for one in decision.settle:
        groups[one.to, one.code].append(one.task)
    for (to, code), tasks in groups.items():
        move_tasks(tasks, State(to), now=now, source=State.RELEASED, code=code)
    again: dict[str, list[UUID]] = defaultdict(list)
    for retry in decision.retry:
        again[retry.code].append(retry.task)
    for code, tasks in again.items():
        move_tasks(tasks, State.WAITING, now=now, source=State.RELEASED, code=code)
    times = {"retry_at": ("timestamptz", [one.at for one in decision.retry])}
    update_rows(Task._meta.db_table, [one.task for one in decision.retry], times)
    if grown := [one.task for one in decision.retry if one.grows]:
        Task.objects.filter(pk__in=among(grown)).update(growths=F("growths") + 1)
    by_name = {step.name: step for step in steps}
    for close in decision.close:
        rows = Task.objects.filter(step=by_name[close.step])
        if close.tasks is not None:
            rows = rows.filter(pk__in=close.tasks)
        move_tasks(rows, State(close.to), now=now, source=State.WAITING, code=close.code, cause=close.cause)


def _stop(run: Run, now: datetime) -> int:
    return end_run_sessions(run, "run-stopped", Message("Another element of run {run} failed.", run=run.name), now)


def end_run_sessions(run: Run, code: str, message: str, now: datetime, *, with_last: bool = False) -> int:
    """End the sessions that elements of a run have, those of its last step only if asked, in the caller's transaction;
    returns how many there were."""
    rows = Task.objects.filter(step__run=run, state=State.RELEASED, session__status__in=_CAN_END)
    rows = rows if with_last else rows.filter(step__is_finally=False)
    ids = list(rows.order_by().values_list("session_id", flat=True))
    if ids:
        end_sessions(ids, StatusCause(Phase.TERMINATE, code, message), now=now)
    return len(ids)


def _end(run: Run, to: RunStatus, now: datetime) -> None:
    """Write the last status. What succeeded launches nothing any more: its secrets are deleted."""
    if to == RunStatus.SUCCEEDED:
        for step in Step.objects.filter(run=run).exclude(secrets={}):
            Step.objects.filter(pk=step.pk).update(secrets=without_values(step.secrets))
    if run.status in FINAL:
        Run.objects.filter(pk=run.pk).update(ended_at=now)
    else:
        move_run(run.pk, Status(to), ended_at=now)


def pass_over(reading: RunsReading) -> int:
    """Do what ``act`` does, and wake the loop again where that opens more."""
    changed = act(reading)
    if reading.has_more:
        with transaction.atomic():
            hint_runs()
    return changed
