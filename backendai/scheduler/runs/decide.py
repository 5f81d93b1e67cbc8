"""Decides the next changes of a run: a pure function of its snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from uuid import UUID

from backendai.scheduler.runs.snapshot import (
    FINAL,
    OPEN,
    UNPLACED_PER_STEP,
    Close,
    Decision,
    Ended,
    OnFailure,
    Retry,
    RunStatus,
    RunView,
    Settle,
    StepView,
    TaskState,
    When,
)

UPSTREAM, ELEMENT, FAILURE, GAVE_UP, PROBE = (
    "upstream-not-met",
    "element-not-met",
    "run-failed",
    "gave-up",
    "probe-failed",
)
_S = TaskState


def decide_run(run: RunView, now: datetime) -> Decision:
    """Return the next changes of the run: elements to settle, retry, close and release, and the final status if the run
    ends."""
    board = _Board(run)
    settle, retry = board.settle(now)
    close = tuple(board.close())
    release = tuple(board.release()) if run.status == RunStatus.RUNNING else ()
    return Decision(settle, retry, close, release, board.stops, board.end())


class _Board:
    """The numbers of elements of a run by state. Each decision updates them for the next decision."""

    def __init__(self, run: RunView) -> None:
        self.run = run
        self.steps = {step.name: step for step in run.steps}
        self.counts = {step.name: Counter(step.counts) for step in run.steps}
        self._closed: set[UUID] = set()

    @property
    def stops(self) -> bool:
        """Whether the run ends its live sessions, because an element failed under ``OnFailure.STOP``."""
        has_live = any(self.counts[step.name][_S.RELEASED] for step in self.run.steps if not step.is_finally)
        return has_live and self.run.on_failure == OnFailure.STOP and self._fails()

    def settle(self, now: datetime) -> tuple[tuple[Settle, ...], tuple[Retry, ...]]:
        """Return decisions about elements whose sessions have ended: their final states, and their retries."""
        settled, again = [], []
        for ended in self.run.ended:
            step = self.steps[ended.step]
            if self._may_retry(step, ended):
                self._count(step.name, _S.RELEASED, _S.WAITING)
                pause = step.retry.pause(ended.attempt)
                grows = step.retry.grows_after(ended.classes)
                again.append(Retry(ended.task, now + timedelta(seconds=pause), ended.code, grows))
                continue
            to = _S.SUCCEEDED if ended.succeeded else _S.CANCELLED if ended.cancelled else _S.FAILED
            self._count(step.name, _S.RELEASED, to)
            settled.append(Settle(ended.task, to, ended.code))
        return tuple(settled), tuple(again)

    def close(self) -> Iterator[Close]:
        """Yield decisions to skip or cancel the waiting elements that can never be released. Such a decision about a
        step may cause decisions about later steps."""
        changed = True
        while changed:
            changed = False
            for step in self.run.steps:
                if self.counts[step.name][_S.WAITING] and (found := self._why_closed(step)):
                    self._count(step.name, _S.WAITING, found.to, self.counts[step.name][_S.WAITING])
                    self._closed.update(one.task for one in step.ready)
                    changed = True
                    yield found
        for step in self.run.steps:
            blocked = [one for one in step.blocked if one.task not in self._closed]
            if blocked and self.counts[step.name][_S.WAITING]:
                self._count(step.name, _S.WAITING, _S.SKIPPED, len(blocked))
                self._closed.update(one.task for one in blocked)
                tasks = tuple(one.task for one in blocked)
                yield Close(step.name, _S.SKIPPED, ELEMENT, blocked[0].cause, tasks)

    def release(self) -> Iterator[UUID]:
        """Yield the ids of the elements that get a session now, within all limits."""
        room = self.run.room
        if self.run.at_once:
            room = min(room, self.run.at_once - sum(one[_S.RELEASED] for one in self.counts.values()))
        for step in self.run.steps:
            if not self._is_open(step):
                continue
            number = min(room, self._room_of(step))
            for one in [one for one in step.ready if one.task not in self._closed][: max(0, number)]:
                self._count(step.name, _S.WAITING, _S.RELEASED)
                room -= 1
                yield one.task

    def end(self) -> RunStatus | None:
        """Return the run's final status if no element is waiting or released; else None."""
        total = sum(self.counts.values(), Counter())
        if any(total[state] for state in OPEN):
            return None
        if self.run.status in FINAL:
            return self.run.status
        if total[_S.FAILED]:
            return RunStatus.FAILED
        return RunStatus.CANCELLED if total[_S.CANCELLED] else RunStatus.SUCCEEDED

    def _may_retry(self, step: StepView, ended: Ended) -> bool:
        if ended.succeeded or ended.cancelled or self.run.status in FINAL or ended.attempt > step.retry.times:
            return False
        if self._gave_up(step) or (not step.is_finally and self._is_drained()):
            return False
        return not step.retry.reasons or bool(step.retry.reasons & ended.classes)

    def _why_closed(self, step: StepView) -> Close | None:
        if not step.is_finally and self._is_drained():
            return Close(step.name, _S.CANCELLED, FAILURE, "")
        if self._gave_up(step):
            return Close(step.name, _S.CANCELLED, GAVE_UP, step.name)
        if step.probe and not self._probe_ok(step) and self._is_probed(step):
            return Close(step.name, _S.CANCELLED, PROBE, step.name)
        for edge in step.edges:
            if self._is_over(edge.on) and not self._is_met(edge.on, edge.when):
                return Close(step.name, _S.SKIPPED, UPSTREAM, edge.on)
        return None

    def _is_open(self, step: StepView) -> bool:
        if step.is_finally:
            return all(self._is_over(one.name) for one in self.run.steps if not one.is_finally)
        edges = (edge for edge in step.edges if edge.when != When.EACH)
        return all(self._is_over(edge.on) and self._is_met(edge.on, edge.when) for edge in edges)

    def _is_over(self, name: str) -> bool:
        return not any(self.counts[name][state] for state in OPEN)

    def _is_met(self, name: str, when: When) -> bool:
        counts = self.counts[name]
        if when == When.SUCCESS:
            return counts[_S.SUCCEEDED] == self.steps[name].size
        return bool(counts[_S.FAILED]) if when == When.FAILURE else True

    def _fails(self) -> bool:
        return any(self._failed(step) for step in self.run.steps if not step.is_finally)

    def _is_drained(self) -> bool:
        return self.run.on_failure != OnFailure.CONTINUE and self._fails()

    def _gave_up(self, step: StepView) -> bool:
        return bool(step.give_up_after) and self._failed(step) >= step.give_up_after

    def _failed(self, step: StepView) -> int:
        """Return how many elements of the step failed. Failures before a person's retry are not counted: the retry
        ignores them."""
        return self.counts[step.name][_S.FAILED] - step.excused.get(_S.FAILED, 0)

    def _is_probed(self, step: StepView) -> bool:
        return not self.counts[step.name][_S.RELEASED] and self._tried(step) >= min(step.probe, step.size)

    def _tried(self, step: StepView) -> int:
        counts = self.counts[step.name]
        return counts[_S.SUCCEEDED] + counts[_S.FAILED] + counts[_S.CANCELLED] - sum(step.excused.values())

    def _probe_ok(self, step: StepView) -> bool:
        return self.counts[step.name][_S.SUCCEEDED] >= min(step.probe, step.size)

    def _room_of(self, step: StepView) -> int:
        counts = self.counts[step.name]
        room = UNPLACED_PER_STEP - step.unplaced
        if step.at_once:
            room = min(room, step.at_once - counts[_S.RELEASED])
        if step.probe and not self._probe_ok(step):
            room = min(room, step.probe - self._tried(step) - counts[_S.RELEASED])
        return room

    def _count(self, name: str, source: TaskState, to: TaskState, number: int = 1) -> None:
        self.counts[name][source] -= number
        self.counts[name][to] += number
