"""What people do with runs: cancel, pause, resume, try failed elements again, change how many run at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import F

from backendai.base.core.errors import Conflict, UserError
from backendai.base.core.messages import Message
from backendai.domain.accounts.acting import both_names
from backendai.domain.accounts.models import User
from backendai.domain.activity.services import audit
from backendai.domain.pipelines.elements import MOST_TASKS
from backendai.domain.pipelines.hints import hint_runs
from backendai.domain.pipelines.models import Edge, Run, State, Status, Step, Task
from backendai.domain.pipelines.moves import move_run, move_tasks
from backendai.domain.pipelines.services.acting import end_run_sessions

CANCELLED = "run-cancelled"
_AGAIN = (State.FAILED, State.CANCELLED)


def cancel_run(run: Run, user: User, *, now: datetime) -> int:
    """Cancel a run: what waits never runs, what runs ends. Returns how many sessions end; Conflict when it is over."""
    code = "user-requested" if run.owner_id == user.pk else "admin-requested"
    with transaction.atomic():
        if not move_run(run.pk, Status.CANCELLED, message=Message("Cancelled by {user}.", user=user.email)):
            raise _over(run)
        move_tasks(Task.objects.filter(step__run=run), State.CANCELLED, now=now, source=State.WAITING, code=CANCELLED)
        ended = end_run_sessions(run, code, Message("Run {run} was cancelled.", run=run.name), now, with_last=True)
        _told(run, user, "run.cancel", sessions=ended)
    return ended


def pause_run(run: Run, user: User) -> None:
    """Release nothing more until the run is resumed; what runs goes on. Raises Conflict unless it runs."""
    _change(run, user, Status.PAUSED, "run.pause")


def resume_run(run: Run, user: User) -> None:
    """Go on after a pause. Raises Conflict unless it is paused."""
    if run.status != Status.PAUSED:
        raise Conflict(Message("The run is not paused ({status}).", status=run.get_status_display()), code="not-paused")
    _change(run, user, Status.RUNNING, "run.resume")


def set_at_once(run: Run, user: User, number: int) -> None:
    """Change how many sessions the run has at once; 0: no limit. What runs goes on."""
    if not 0 <= number <= MOST_TASKS:
        text = Message("Write a number from 0 to {most}.", most=MOST_TASKS)
        raise UserError(text, field="at_once", code="invalid-number")
    with transaction.atomic():
        if not Run.objects.filter(pk=run.pk, ended_at=None).update(at_once=number, version=F("version") + 1):
            raise _over(run)
        _told(run, user, "run.at-once", at_once=number)


def retry_failed(run: Run, user: User, *, step: str = "", indexes: Collection[int] | None = None, now: datetime) -> int:
    """Let failed and cancelled elements wait again, all or those of a step, and what was skipped because of them. What
    succeeded is never repeated; failures that are not retried neither stop nor drain the run any more. Returns how
    many; Conflict when there is none."""
    with transaction.atomic():
        # A decision about the run meanwhile finds another version.
        Run.objects.filter(pk=run.pk).update(version=F("version") + 1)
        run.refresh_from_db()
        steps = _steps_named(run, step)
        rows = Task.objects.filter(step__in=steps, state__in=_AGAIN)
        if indexes is not None:
            rows = rows.filter(index__in=list(indexes))
        touched = set(rows.order_by().values_list("step", flat=True))
        number = move_tasks(rows, State.WAITING, now=now, retry_at=None, is_excused=False)
        if not number:
            raise Conflict("No element has failed.", code="nothing-failed")
        Task.objects.filter(step__run=run, state__in=_AGAIN).update(is_excused=True)
        behind = Task.objects.filter(step__in=_behind(run, touched), state=State.SKIPPED)
        move_tasks(behind, State.WAITING, now=now)
        if run.is_over:
            move_run(run.pk, Status.RUNNING, ended_at=None, message="", seen_at=None, cleared_at=None, mailed_at=None)
        _told(run, user, "run.retry", elements=number, step=step)
    return number


def _steps_named(run: Run, name: str) -> list[UUID]:
    rows = Step.objects.filter(run=run)
    found = list((rows.filter(name=name) if name else rows).values_list("pk", flat=True))
    if not found:
        raise UserError(Message("The run has no step {name}.", name=repr(name[:40])), field="step", code="unknown-step")
    return found


def _behind(run: Run, steps: Iterable[UUID]) -> set[UUID]:
    """Return these steps and all that wait for them, directly or through others."""
    after: dict[UUID, list[UUID]] = {}
    for step, on in Edge.objects.filter(step__run=run).values_list("step", "on"):
        after.setdefault(on, []).append(step)
    found, next_ones = set(steps), list(steps)
    while next_ones:
        for one in after.get(next_ones.pop(), ()):
            if one not in found:
                found.add(one)
                next_ones.append(one)
    return found


def _change(run: Run, user: User, to: Status, action: str) -> None:
    with transaction.atomic():
        if not move_run(run.pk, to):
            raise _over(run)
        _told(run, user, action)


def _told(run: Run, user: User, action: str, **about: object) -> None:
    audit(user.pk, action, "run", [run.pk], name=run.name, **about, **both_names(user, run.owner))
    hint_runs()


def _over(run: Run) -> Conflict:
    now = Run.objects.get(pk=run.pk)
    return Conflict(Message("The run is {status} already.", status=now.get_status_display()), code="run-over")
