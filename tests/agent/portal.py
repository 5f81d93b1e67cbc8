"""A portal in memory: the same calls as the agent's HTTP client, and the same answers as the real one."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import RLock
from uuid import UUID, uuid4

from backendai.agent.portal.client import PortalRefused, PortalUnreachable
from backendai.base.wire.images import RegistryAccess
from backendai.base.wire.messages import (
    Desired,
    Epoch,
    KernelReport,
    KernelSighting,
    KernelSpec,
    KernelState,
    StopOrder,
    SyncDown,
    SyncUp,
)
from backendai.base.wire.node_jobs import JobState, NodeJobOrder, NodeJobReport, NodeJobSpec

AGENT = "n1"
DEPLOYMENT = "test"


def make_spec(kernel_id: UUID | None = None, **over: object) -> KernelSpec:
    """Return a small spec for agent n1."""
    fields: dict[str, object] = {
        "deployment": DEPLOYMENT,
        "kernel_id": kernel_id or uuid4(),
        "session_id": uuid4(),
        "generation": 1,
        "agent": AGENT,
        "session_name": "quick",
        "image": "python",
        "slots": {"cpu": "1"},
    }
    return KernelSpec.model_validate(fields | over)


class FakePortal:
    """Holds what is wanted; ``said`` is every word from the node in order. ``down`` set: nothing answers."""

    def __init__(self, public_key: str = "") -> None:
        self.specs: dict[UUID, KernelSpec] = {}
        self.status: dict[UUID, str] = {}
        self.said: list[str] = []
        self.reports: list[KernelReport] = []
        self.syncs: list[SyncUp] = []
        self.logs: dict[UUID, tuple[bytes, bool]] = {}
        self.fetches: list[UUID] = []
        self.access = RegistryAccess()
        self.jobs: dict[UUID, NodeJobSpec] = {}
        self.job_reports: list[NodeJobReport] = []
        self.down = False
        self.forget_applied = False
        self.before_report: Callable[[KernelReport], None] = lambda report: None
        self.public_key = public_key
        self.epoch: Epoch | None = None
        self.removals: list[KernelSighting] = []
        self.lock = RLock()

    def want(self, spec: KernelSpec) -> KernelSpec:
        with self.lock:
            self.specs[spec.kernel_id] = spec
            self.status[spec.kernel_id] = "SCHEDULED"
        return spec

    def terminate(self, kernel_id: UUID) -> None:
        self.status[kernel_id] = "TERMINATING"

    def states(self, kernel_id: UUID) -> list[str]:
        return [report.state.value for report in self.reports if report.kernel_id == kernel_id]

    def now(self) -> float:
        return time.time()

    def sync(self, up: SyncUp) -> SyncDown:
        self._answer()
        with self.lock:
            self.syncs.append(up)
            live = {key: spec for key, spec in self.specs.items() if self.status[key] != "TERMINATED"}
            kept = {key: spec for key, spec in live.items() if self.status[key] != "TERMINATING"}
            wanted = {(key, spec.generation) for key, spec in live.items()}
            return SyncDown(
                deployment=DEPLOYMENT,
                public_key=self.public_key,
                desired=[
                    Desired(kernel_id=key, generation=spec.generation, started=self.status[key] == "RUNNING")
                    for key, spec in kept.items()
                ],
                stop=[
                    StopOrder(kernel_id=key, generation=spec.generation)
                    for key, spec in live.items()
                    if key not in kept
                ],
                unwanted=[one for one in up.kernels if (one.kernel_id, one.generation) not in wanted],
                removals=self.removals,
                epoch=self.epoch,
                jobs=[
                    NodeJobOrder(kind=one.kind, job_id=one.job_id, attempt=one.attempt) for one in self.jobs.values()
                ],
            )

    def fetch_spec(self, kernel_id: UUID) -> KernelSpec | None:
        self._answer()
        self.fetches.append(kernel_id)
        return self.specs[kernel_id] if self._is_kept(kernel_id) else None

    def report(self, report: KernelReport) -> bool:
        self.before_report(report)
        self._answer()
        with self.lock:
            self.said.append(f"report {report.state.value}")
            self.reports.append(report)
            spec = self.specs.get(report.kernel_id)
            if spec is None:
                raise PortalRefused("unknown kernel", status=404)
            if spec.generation != report.generation:
                return False
            if report.state == KernelState.TERMINATED:
                self.status[report.kernel_id] = "TERMINATED"
                return True
            if not self._is_kept(report.kernel_id):
                return False
            repeated = report.state == KernelState.RUNNING and self.status[report.kernel_id] == "RUNNING"
            self.status[report.kernel_id] = report.state.value
            return not (repeated or self.forget_applied)

    def put_log(self, kernel_id: UUID, generation: int, log: bytes, *, truncated: bool) -> None:
        self._answer()
        self.said.append("log")
        self.logs[kernel_id] = (log, truncated)

    def registry_access(self, kernel_id: UUID) -> RegistryAccess:
        self._answer()
        return self.access

    def fetch_job(self, kind: str, job_id: UUID) -> NodeJobSpec | None:
        self._answer()
        spec = self.jobs.get(job_id)
        return spec if spec and spec.kind == kind else None

    def report_job(self, report: NodeJobReport) -> bool:
        self._answer()
        with self.lock:
            self.job_reports.append(report)
            if report.state != JobState.RUNNING:
                return self.jobs.pop(report.job_id, None) is not None
            return report.job_id in self.jobs

    def _is_kept(self, kernel_id: UUID) -> bool:
        return self.status.get(kernel_id, "TERMINATED") not in ("TERMINATING", "TERMINATED")

    def _answer(self) -> None:
        if self.down:
            raise PortalUnreachable("the portal is down")
