"""One of many simulated nodes: what it has, what it still has to say, and what it makes of the portal's answer.

It owns no thread and no clock. Words are kept until the portal has answered them; saying them twice is harmless.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice
from uuid import UUID

from backendai.agent.backends.base import BackendError, Ended
from backendai.agent.backends.simulated.backend import SimulatedBackend
from backendai.agent.backends.simulated.kernel import SimulatedKernel
from backendai.agent.loop.reconcile import Reconciler
from backendai.base.wire.messages import KernelReport, KernelSighting, KernelSpec, KernelState, StopOrder, SyncUp
from bench.many_agents.messages import FLEET_WORDS, FleetAnswer, FleetNode, KernelLogTail

logger = logging.getLogger(__name__)

LOG_LIMIT = 32 * 2**10
_MISSING = "The kernel is not on the node any more: simulated kernels end with the process that simulates them."
_Word = tuple[UUID, int, KernelState]
Wake = Callable[[float, "SimulatedNode", UUID], None]


class SimulatedNode:
    """``wake`` is called with the time at which ``look`` should be called for a kernel."""

    def __init__(self, name: str, token: str, *, backend: SimulatedBackend, wake: Wake) -> None:
        self.name, self.token = name, token
        self.sync_due = 0.0
        self.told_images = False
        self._backend, self._wake = backend, wake
        self._here: dict[UUID, int] = {}
        self._starting: dict[UUID, int] = {}
        self._words: dict[_Word, KernelReport] = {}
        self._logs: dict[UUID, KernelLogTail] = {}
        self._reconciler = Reconciler()

    @property
    def has_words(self) -> bool:
        """Whether the portal should hear something soon."""
        return bool(self._words)

    def listing(self, now: float) -> list[KernelSighting]:
        """Return the kernels that have come to life, for a sync."""
        found = (self._backend.find(kernel_id) for kernel_id in self._here)
        return [kernel.sighting(now) for kernel in found if kernel and kernel.began(now)]

    def say(self, up: SyncUp | None, now: float) -> FleetNode:
        """Return what this node has to say now, as much of it as one call takes."""
        reports = list(islice(self._words.values(), FLEET_WORDS))
        ended = [report.kernel_id for report in reports if report.state == KernelState.TERMINATED]
        return FleetNode(
            token=self.token,
            up=up,
            logs=[self._logs[kernel_id] for kernel_id in ended if kernel_id in self._logs],
            reports=reports,
            known=list(self._starting.items()),
        )

    def hear(self, said: FleetNode, answer: FleetAnswer, now: float) -> None:
        """Do what the portal's answer to ``said`` asks for. Words that were not taken are said again, as they are or
        after a look at the kernel."""
        if answer.status != 200:
            logger.warning("node %s is refused (%s): %s", self.name, answer.code, answer.detail)
            self._reconciler.forget()
            if answer.status == 400:
                self._words.clear()
            return
        for report in said.reports:
            self._words.pop((report.kernel_id, report.generation, report.state), None)
            if report.state == KernelState.TERMINATED:
                self._remove(report.kernel_id, report.generation)
        for order in answer.stop:
            self._stop(order, now)
        for spec in answer.start:
            self._begin(spec, now)
        if said.up is not None and answer.down is not None:
            self._reconcile(said.up, answer, now)

    def look(self, kernel_id: UUID, now: float) -> None:
        """Take note of what has become true of a kernel: it lives, it has ended."""
        kernel = self._backend.find(kernel_id)
        if kernel is None or self._here.get(kernel_id) != kernel.generation:
            return
        ended = kernel.ended(now)
        if kernel_id in self._starting and kernel.began(now):
            self._started(kernel_id, kernel)
            if ended is None and kernel.ends_at() != float("inf"):
                self._wake(kernel.ends_at(), self, kernel_id)
        if ended is not None:
            self._finish(kernel_id, kernel.generation, ended)

    def _begin(self, spec: KernelSpec, now: float) -> None:
        if spec.agent != self.name or self._here.get(spec.kernel_id, -1) >= spec.generation:
            return
        self._backend.remove(spec.kernel_id)  # an older generation
        try:
            kernel, _ = self._backend.begin(spec)
        except BackendError as error:
            self._finish(spec.kernel_id, spec.generation, Ended(None, error.code, error.message))
            return
        self._here[spec.kernel_id] = self._starting[spec.kernel_id] = spec.generation
        self._wake(kernel.begins_at, self, spec.kernel_id)

    def _started(self, kernel_id: UUID, kernel: SimulatedKernel) -> None:
        del self._starting[kernel_id]
        self._tell(
            KernelReport(
                kernel_id=kernel_id,
                generation=kernel.generation,
                state=KernelState.RUNNING,
                container_id=kernel.container_id(),
            )
        )

    def _stop(self, order: StopOrder, now: float) -> None:
        generation = self._here.get(order.kernel_id)
        if generation is None:
            self._finish(order.kernel_id, order.generation, Ended(None, "", ""))
        elif generation <= order.generation:
            self._backend.stop(order.kernel_id, grace=order.grace)
            self.look(order.kernel_id, now)

    def _reconcile(self, up: SyncUp, answer: FleetAnswer, now: float) -> None:
        assert answer.down is not None
        held = self._starting.keys() | {kernel_id for kernel_id, _, _ in self._words}
        orders = self._reconciler.compare(up.kernels, answer.down, held=held, eager=True)
        for kernel_id, _ in orders.ended:
            self.look(kernel_id, now)
        for kernel_id, generation in orders.discard:
            if kernel_id not in held:
                self._remove(kernel_id, generation)
        for kernel_id, generation in orders.missing:
            self._finish(kernel_id, generation, Ended(None, "container-missing", _MISSING))
        self.told_images = not answer.down.want_images

    def _finish(self, kernel_id: UUID, generation: int, ended: Ended) -> None:
        self._starting.pop(kernel_id, None)
        if (kernel_id, generation, KernelState.TERMINATED) in self._words:
            return
        log, truncated = self._backend.read_log(kernel_id, limit=LOG_LIMIT)
        if log:
            text = log.decode(errors="replace")
            self._logs[kernel_id] = KernelLogTail(
                kernel_id=kernel_id, generation=generation, text=text, truncated=truncated
            )
        self._tell(
            KernelReport(
                kernel_id=kernel_id,
                generation=generation,
                state=KernelState.TERMINATED,
                exit_code=ended.exit_code,
                reason=ended.reason,
                message=ended.message,
            )
        )

    def _tell(self, report: KernelReport) -> None:
        self._words[report.kernel_id, report.generation, report.state] = report

    def _remove(self, kernel_id: UUID, generation: int) -> None:
        if self._here.get(kernel_id, generation) != generation:
            return
        self._here.pop(kernel_id, None)
        self._starting.pop(kernel_id, None)
        self._logs.pop(kernel_id, None)
        self._backend.remove(kernel_id)
