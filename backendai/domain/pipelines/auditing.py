"""What always holds of runs; ``manage.py audit`` and the tests of invariants check it."""

from __future__ import annotations

from django.db.models import Count, F, Q

from backendai.domain.compute.auditing import Check, Violations, World
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.status import LIVE
from backendai.domain.pipelines.models import Run, State, Task


def live_sessions_belong_to_elements(world: World) -> Violations:
    """R-01: a live session of a run that is kept is that of the newest attempt of an element."""
    live = ComputeSession.objects.filter(status__in=LIVE, run_id__in=Run.objects.values("pk"))
    stray = live.exclude(run_task__state=State.RELEASED, run_attempt__number=F("run_task__attempt"))
    return [
        f"session {pk} of run {run} belongs to no released element" for pk, run in stray.values_list("pk", "run_id")
    ]


def attempts_are_counted(world: World) -> Violations:
    """R-02: an element has as many attempts as it counts, and one that was released has one."""
    rows = Task.objects.annotate(number=Count("attempts"))
    wrong = rows.filter(~Q(number=F("attempt")) | Q(state=State.RELEASED, attempt=0))
    counted = wrong.order_by().values_list("pk", "attempt", "number")
    return [f"element {pk} counts {said} attempts and has {number}" for pk, said, number in counted]


def ended_runs_have_nothing_open(world: World) -> Violations:
    """R-03: nothing of a run that has ended waits or runs."""
    rows = Task.objects.filter(state__in=(State.WAITING, State.RELEASED)).exclude(step__run__ended_at=None)
    return [f"element {pk} of ended run {run} is open" for pk, run in rows.values_list("pk", "step__run")]


RUN_CHECKS: dict[str, Check] = {
    "R-01": live_sessions_belong_to_elements,
    "R-02": attempts_are_counted,
    "R-03": ended_runs_have_nothing_open,
}
