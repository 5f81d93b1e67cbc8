"""Runs the portal's jobs on this agent: fetches each, runs it once, reports the outcome, cancels unwanted ones.

Every sync names a job until the portal has its outcome, so that a lost order or an interrupted job starts again. An
undelivered outcome is stored and reported when the job is named again; the job is not repeated.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import timedelta
from threading import Event, Lock
from uuid import UUID

from pydantic import BaseModel, ValidationError

from backendai.agent.backends.base import ENGINE_SILENT, BackendError, Fetched
from backendai.agent.jobs.handlers import JobHandler, JobUnwanted, Outcome
from backendai.agent.kernel_queues import Claim, KernelQueues, Move
from backendai.agent.portal.client import Portal, PortalRefused
from backendai.base.core.durations import describe_duration
from backendai.base.core.errors import PlatformError
from backendai.base.wire.node_jobs import JobState, NodeJobOrder, NodeJobReport, NodeJobSpec

logger = logging.getLogger(__name__)

_SPEAK_SECONDS = 2.0
_MOST_UNTOLD = 256
_Key = tuple[UUID, int]  # a job's id and attempt


class NodeJobs:
    """Runs jobs in one lane per kind, so that they do not delay kernels or other kinds."""

    def __init__(self, handlers: Sequence[JobHandler], portal: Portal, lanes: KernelQueues) -> None:
        self._handlers, self._portal, self._lanes = {one.kind: one for one in handlers}, portal, lanes
        self._draining, self._changed = Event(), Lock()
        self._untold: dict[_Key, NodeJobReport] = {}
        for one in handlers:
            lanes.add(one.kind, one.at_once)

    def begin_soon(self, order: NodeJobOrder) -> None:
        """Queue this job; it is run if the portal still wants it. Ignores jobs in progress, and unknown kinds, as the
        portal knows the agent's kinds."""
        if order.kind in self._handlers and not self._draining.is_set():
            claim = Claim(order.job_id, order.attempt, "job", lane=order.kind)
            self._lanes.submit(claim, lambda _: self._work(order))

    def drain(self) -> None:
        """Start no jobs from now on; running jobs give up at their next report."""
        self._draining.set()

    def _work(self, order: NodeJobOrder) -> Move | None:
        try:
            spec = None if self._draining.is_set() else self._portal.fetch_job(order.kind, order.job_id)
            if spec is not None:
                self._carry_out(self._handlers[order.kind], spec)
        except PlatformError as error:
            logger.warning("job %s %s: %s", order.kind, order.job_id, error.message)
        return None

    def _carry_out(self, handler: JobHandler, spec: NodeJobSpec) -> None:
        progress = _Progress(self, spec)
        with self._changed:
            untold = self._untold.get((spec.job_id, spec.attempt))
        if untold is not None:
            self.report(untold)
            return
        try:
            work = handler.work.model_validate(spec.work)
        except ValidationError:  # the error is not quoted, as the work may contain a secret
            self._fail(spec, "This agent cannot read the order. Update the agent to the version of the portal.")
            return
        if spec.has_started and not handler.is_repeatable:
            self._fail(spec, "The agent was restarted while it worked on this.")
            self._undo(handler, work)
            return
        self._run(handler, work, progress)

    def _run(self, handler: JobHandler, work: BaseModel, progress: _Progress) -> None:
        spec = progress.spec
        try:
            progress.tell(handler.begins)
            outcome = handler.run(work, progress)
            self._finish(spec, outcome)
        except JobUnwanted:
            logger.info("job %s %s is not wanted any more", spec.kind, spec.job_id)
            if not self._draining.is_set():
                self._undo(handler, work)
        except BackendError as error:
            if error.code in ENGINE_SILENT:  # the outcome is unknown: the next sync names the job again
                raise
            self._fail(spec, error.message)
            self._undo(handler, work)

    def report(self, report: NodeJobReport) -> bool:
        """Send a report; returns whether the portal still wants the job. An undelivered progress report is dropped; an
        undelivered outcome is stored and sent when the portal names the job again."""
        key, is_over = (report.job_id, report.attempt), report.state != JobState.RUNNING
        try:
            is_wanted = self._portal.report_job(report)
        except PortalRefused as error:
            is_wanted = error.status != 404
        except PlatformError as error:
            logger.info("job %s: %s is not reported: %s", report.job_id, report.state, error.message)
            with self._changed:
                if is_over:
                    self._keep(key, report)
            return True
        with self._changed:
            self._untold.pop(key, None)
        return is_wanted

    def _keep(self, key: _Key, report: NodeJobReport) -> None:
        if len(self._untold) >= _MOST_UNTOLD:  # the portal may no longer name the oldest job
            del self._untold[next(iter(self._untold))]
        self._untold[key] = report

    def _finish(self, spec: NodeJobSpec, outcome: Outcome) -> None:
        if not self.report(_report(spec, JobState.DONE, outcome.message, result=outcome.result)):
            raise JobUnwanted

    def _fail(self, spec: NodeJobSpec, message: str) -> None:
        self.report(_report(spec, JobState.FAILED, message))

    def _undo(self, handler: JobHandler, work: BaseModel) -> None:
        try:
            handler.undo(work)
        except PlatformError as error:
            logger.warning("job %s: what it left is not deleted: %s", handler.kind, error.message)

    @property
    def is_draining(self) -> bool:
        """Whether the agent is stopping."""
        return self._draining.is_set()


class _Progress:
    """One job's progress reports. Implements ``JobProgress``."""

    def __init__(self, jobs: NodeJobs, spec: NodeJobSpec) -> None:
        self._jobs, self.spec = jobs, spec
        self._phase, self._told_at = "", time.monotonic()
        self._until = self._told_at + spec.seconds

    def tell(self, message: str, *, phase: str = "", share: float | None = None) -> None:
        self._phase, self._told_at = phase or self._phase, time.monotonic()
        if not self._jobs.report(_report(self.spec, JobState.RUNNING, message, phase=self._phase, progress=share)):
            raise JobUnwanted

    def heed(self, fetched: Fetched) -> None:
        if self._jobs.is_draining:
            raise JobUnwanted
        if self.seconds_left() <= 0:
            longest = describe_duration(timedelta(seconds=self.spec.seconds))
            raise BackendError("It took longer than {longest}.", longest=longest, code="job-timeout")
        if time.monotonic() - self._told_at >= _SPEAK_SECONDS:
            self.tell(fetched.message, share=fetched.share)

    def seconds_left(self) -> float:
        return max(self._until - time.monotonic(), 0.0)


def _report(spec: NodeJobSpec, state: JobState, message: str, **more: object) -> NodeJobReport:
    about = {"kind": spec.kind, "job_id": spec.job_id, "attempt": spec.attempt}
    return NodeJobReport.model_validate({**about, "state": state, "message": message, **more})
