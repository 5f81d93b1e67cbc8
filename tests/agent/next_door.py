"""An agent's jobs beside the portal's own verbs, without the way between."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.utils import timezone

from backendai.agent.backends.base import Backend
from backendai.agent.jobs.handlers import JobHandler
from backendai.agent.jobs.kinds import JOB_HANDLERS
from backendai.agent.jobs.running import NodeJobs
from backendai.agent.kernel_queues import KernelQueues
from backendai.base.core.errors import NotFound
from backendai.base.wire.node_jobs import NodeJobReport, NodeJobSpec
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.node_jobs import kind_named, orders_of


class NextDoor:
    """An agent that does its jobs when a test says so. ``said`` is every report in order."""

    def __init__(self, agent: Agent, backend: Backend, *, handlers: Sequence[type[JobHandler]] | None = None) -> None:
        self.agent, self.said = agent, list[NodeJobReport]()
        self._lanes = KernelQueues(starts=1, pulls=1, ends=1)
        made = [one(backend, lambda: None) for one in (JOB_HANDLERS if handlers is None else handlers)]
        self.jobs = NodeJobs(made, self, self._lanes)  # type: ignore[arg-type]

    def fetch_job(self, kind: str, job_id: UUID) -> NodeJobSpec | None:
        try:
            return kind_named(kind).spec(self.agent, job_id)
        except NotFound:
            return None

    def report_job(self, report: NodeJobReport) -> bool:
        self.said.append(report)
        return kind_named(report.kind).heard(self.agent, report, now=timezone.now())

    def work(self) -> int:
        """Do what the portal wants now, one job after the other and in this thread; returns how many there were."""
        orders = orders_of([self.agent.pk]).get(self.agent.pk, [])
        for order in orders:
            self.jobs._work(order)
        return len(orders)
