"""A single command that is launched again when it fails: a run of one element."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from backendai.base.core.errors import Conflict
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import User
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.pipelines.models import Task
from backendai.domain.pipelines.reading import read_runs
from backendai.domain.pipelines.services.acting import act
from backendai.domain.pipelines.services.creating import array_of, create_run


def launch_with_retries(
    user: User, spec: SessionSpec, retry: Any, *, idempotency_key: str | None, now: datetime
) -> tuple[ComputeSession, bool]:
    """Return the session of the newest try, and whether the run is new. Raises as ``create_run``, and Conflict where
    its first session is not allowed yet: the run goes on trying."""
    run, is_new = create_run(user, array_of(spec, 1, retries=retry), idempotency_key=idempotency_key, now=now)
    if is_new:
        act(read_runs(now, [run.pk]))
    task = Task.objects.select_related("session", "step").get(step__run=run)
    if task.session is None:
        text = Message("Run {name} was created, but its session waits: {why}", name=run.name, why=task.step.message)
        raise Conflict(text, code="session-waits", run=str(run.pk))
    return task.session, is_new
