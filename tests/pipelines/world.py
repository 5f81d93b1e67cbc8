"""Runs whose sessions end as a test wants: the real loop and services, and moves in place of nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.services.status.moves import StatusCause, move, move_kernels
from backendai.domain.compute.status import Phase, Result, Status
from backendai.domain.pipelines.models import Run, State, Task
from backendai.domain.pipelines.services.creating import RunSpec, create_run
from backendai.portal.loops.loops import run_pipelines
from tests.factories import make_group, make_image

ARRAY: Mapping[str, Any] = {
    "image": "python",
    "resources": {"cpu": 1, "mem": "512m"},
    "startup_command": "python work.py",
}
Verdict = Callable[[ComputeSession], str]  # the reason of the end


def well(session: ComputeSession) -> str:
    return "task-finished"


def launch(user: User, now: datetime | None = None, **document: Any) -> Run:
    """Return a new run of this document."""
    make_group()
    make_image()
    return create_run(user, RunSpec(document=document), now=now or timezone.now())[0]


def launch_text(user: User, text: str, **parameters: Any) -> Run:
    make_group()
    make_image()
    return create_run(user, RunSpec(text=text, parameters=parameters), now=timezone.now())[0]


def end(sessions: list[ComputeSession], verdict: Verdict, now: datetime) -> None:
    """Let these sessions run and end, those with the same reason together."""
    by_code: dict[str, list[ComputeSession]] = {}
    for session in sessions:
        by_code.setdefault(verdict(session), []).append(session)
    for code, some in by_code.items():
        ids = [session.pk for session in some]
        kernels = list(Kernel.objects.filter(session__in=ids).values_list("pk", flat=True))
        for to in (Status.SCHEDULED, Status.RUNNING):
            move(ids, to, StatusCause(Phase.START), now=now)
            move_kernels(kernels, to, now=now)
        result = Result.SUCCESS if code == "task-finished" else Result.FAILED
        data = {"exit_code": int(code.partition(":")[2])} if code.startswith("exit:") else {}
        reason = "task-failed" if data else code
        move(ids, Status.TERMINATING, StatusCause(Phase.RUN, reason, data=data), now=now, result=result)
        move_kernels(kernels, Status.TERMINATED, now=now)
        move(ids, Status.TERMINATED, StatusCause(Phase.TERMINATE), now=now)


def pending(run: Run) -> list[ComputeSession]:
    return list(ComputeSession.objects.filter(run_id=run.pk, status=Status.PENDING).order_by("created_at", "name"))


def play(run: Run, verdict: Verdict = well, *, now: datetime | None = None, most: int = 200) -> Run:
    """Let the loop run, and every session that it launches end, until the run has ended or stands still."""
    now = now or timezone.now()
    for _ in range(most):
        now += timedelta(seconds=2)
        changed = run_pipelines(now)
        waiting = pending(run)
        end(waiting, verdict, now)
        run.refresh_from_db()
        if run.ended_at or not (changed or waiting):
            break
    run.refresh_from_db()
    return run


def states(run: Run, step: str = "") -> dict[str, int]:
    """Return how many elements are in each state."""
    rows = Task.objects.filter(step__run=run)
    if step:
        rows = rows.filter(step__name=step)
    found: dict[str, int] = {}
    for state in rows.values_list("state", flat=True):
        found[str(State(state))] = found.get(str(State(state)), 0) + 1
    return found


def index_of(session: ComputeSession) -> int:
    return int(session.environ["BACKENDAI_ARRAY_INDEX"])
