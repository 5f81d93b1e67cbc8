"""Why an element waits: the run, its step, an edge, a limit, and last the scheduler's own reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from backendai.base.core.messages import Message
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.status import Status as SessionStatus
from backendai.domain.pipelines.models import Edge, Run, State, Status, Step, Task
from backendai.domain.pipelines.presentation import Counts, step_counts
from backendai.scheduler.runs.snapshot import UNPLACED_PER_OWNER, UNPLACED_PER_STEP, When


@dataclass(frozen=True, slots=True)
class Explanation:
    """One reason, the nearest first."""

    code: str
    message: str


def why_waits(run: Run, task: Task, now: datetime) -> list[Explanation]:
    """Return why this element does not run, nearest reason first; empty for one that runs or succeeded. At most four
    queries."""
    if task.state == State.RELEASED:
        return _of_session(task.session)
    if task.state in (State.SKIPPED, State.CANCELLED):
        text = _never(task.cause).get(task.code)
        return [Explanation(task.code, text)] if text else []
    if task.state != State.WAITING:
        return []
    found = list(_of_run(run, task, now))
    counts = step_counts(run)
    found += _of_edges(run, task, counts)
    if not found:
        found += _of_limits(run, task.step, counts)
    if not found:
        found.append(Explanation("next-pass", Message("It is launched by the next pass, within two seconds.")))
    return found


def _never(cause: str) -> dict[str, Message]:
    """Return why an element never ran, by the code of its state."""
    return {
        "upstream-not-met": Message("It never ran: step {cause} did not end as this step needs it.", cause=cause),
        "element-not-met": Message("It never ran: its own element of step {cause} did not succeed.", cause=cause),
        "run-failed": Message("It never ran: another element failed, and the run launches nothing new after that."),
        "gave-up": Message("It never ran: too many elements of this step failed."),
        "probe-failed": Message("It never ran: the first elements of this step failed."),
        "run-cancelled": Message("It never ran: the run was cancelled."),
    }


def _of_session(session: ComputeSession | None) -> list[Explanation]:
    if session is None or session.status != SessionStatus.PENDING:
        return []
    text = session.reason_text or Message("The scheduler has not looked at it yet.")
    return [Explanation(session.status_reason or "pending", text)]


def _of_run(run: Run, task: Task, now: datetime) -> Iterator[Explanation]:
    if run.status == Status.PAUSED:
        yield Explanation("run-paused", Message("The run is paused: resume it."))
    if task.step.message:
        yield Explanation("step-refused", task.step.message)
    if task.retry_at and task.retry_at > now:
        seconds = max(1, round((task.retry_at - now).total_seconds()))
        yield Explanation("retry-pause", Message("It is tried again in {seconds} s.", seconds=seconds))


def _of_edges(run: Run, task: Task, counts: dict[UUID, Counts]) -> Iterator[Explanation]:
    if task.step.is_finally:
        others = Step.objects.filter(run=run, is_finally=False).order_by("place")
        names = [one.name for one in others if _open(counts[one.pk])]
        if names:
            yield Explanation(
                "waits-for-all", Message("It runs when all steps are over; open: {names}.", names=_few(names))
            )
    edges = Edge.objects.filter(step=task.step_id).select_related("on").only("when", "on__name", "on__size")
    for edge in edges.order_by("pk"):
        number = _open(counts[edge.on_id])
        if edge.when == When.EACH:
            other = Task.objects.filter(step=edge.on_id, place=task.place).first()
            if other is not None and other.state in (State.WAITING, State.RELEASED):
                text = Message("It waits for element {index} of step {name}.", index=other.index, name=edge.on.name)
                yield Explanation("waits-for-element", text)
        elif number:
            text = Message(
                "It waits for step {name}: {number} of {size} elements are open.",
                name=edge.on.name,
                number=number,
                size=edge.on.size,
            )
            yield Explanation("waits-for-step", text)


def _of_limits(run: Run, step: Step, counts: dict[UUID, Counts]) -> Iterator[Explanation]:
    own = counts[step.pk]
    live = sum(one[State.RELEASED] for one in counts.values())
    if run.at_once and live >= run.at_once:
        text = Message("The run has {number} sessions at once: raise the limit to launch more.", number=run.at_once)
        yield Explanation("run-at-once", text)
    if step.at_once and own[State.RELEASED] >= step.at_once:
        yield Explanation(
            "step-at-once", Message("It may have {number} sessions at once, and has them.", number=step.at_once)
        )
    if step.probe and own[State.SUCCEEDED] < min(step.probe, step.size):
        text = Message("The first {number} elements of the step are tried before the others.", number=step.probe)
        yield Explanation("probe", text)
    unplaced = ComputeSession.objects.pending().filter(run_id__isnull=False, owner=run.owner_id)
    of_step, of_owner = unplaced.filter(run_task__step=step).count(), unplaced.count()
    for number, most in ((of_step, UNPLACED_PER_STEP), (of_owner, UNPLACED_PER_OWNER)):
        if number >= most:
            text = Message("{number} sessions before it wait for an agent; {most} may.", number=number, most=most)
            yield Explanation("enough-wait", text)
            return


def _open(counts: Counts) -> int:
    return counts[State.WAITING] + counts[State.RELEASED]


def _few(names: list[str]) -> str:
    return ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
