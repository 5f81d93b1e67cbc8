"""Queues actions on kernels for hints, the sync loop and the watcher.

This module does not decide: the portal names the desired kernels, the backend lists the existing ones, and an action
brings one kernel to the desired state and reports the result. Orders may be repeated, reordered or lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from uuid import UUID

from backendai.agent.backends.abilities import HomeStoring
from backendai.agent.backends.base import Backend
from backendai.agent.kernel_index import KernelIndex
from backendai.agent.kernel_queues import Claim, KernelQueues
from backendai.agent.loop.ends import DEFAULT_GRACE, Ends
from backendai.agent.loop.manifests import Manifests
from backendai.agent.loop.starts import Starts
from backendai.agent.portal.client import Portal
from backendai.base.core.messages import Message

logger = logging.getLogger(__name__)


class Kernels:
    """Queues actions on the lanes. No method blocks."""

    def __init__(
        self,
        backend: Backend,
        portal: Portal,
        *,
        agent: str,
        lanes: KernelQueues,
        roster: KernelIndex,
        manifests: Manifests,
        on_pulled: Callable[[], None],
    ) -> None:
        self._backend, self._lanes, self._roster, self._manifests = backend, lanes, roster, manifests
        self._ends = Ends(backend, portal, roster)
        self._starts = Starts(
            backend, portal, roster, self._ends, agent=agent, save_manifest=manifests.save, on_pulled=on_pulled
        )

    def ask_readiness_of(self, listens: Callable[[UUID, int], bool]) -> None:
        """Set the function that says whether a program in a kernel listens on a port."""
        self._starts.listens = listens

    def when_unanswered(self, act: Callable[[], None]) -> None:
        """Set the function to call when a start failed because the portal did not answer."""
        self._starts.on_unanswered = act

    def start_soon(self, kernel_id: UUID, generation: int) -> bool:
        """Start or adopt this kernel, if the portal still wants it: after the end of an older generation that is in
        progress. Returns whether an action was queued."""
        if self._starts.draining.is_set():
            return False
        claim, holder = Claim(kernel_id, generation, "start"), self._lanes.holder(kernel_id)
        if holder is None or holder.action == "start" or holder.generation >= generation:
            return self._lanes.submit(claim, self._starts.start)
        self._lanes.submit_after(claim, self._starts.start)
        return True

    def stop_soon(self, kernel_id: UUID, generation: int, grace: float = DEFAULT_GRACE) -> None:
        """Stop this kernel and report it. A start that waits in a lane is withdrawn; one in progress is asked to
        give up. While it pulls its image nothing of the kernel exists, so its end is reported at once."""
        holder = self._lanes.holder(kernel_id)
        if holder is not None and holder.action in ("stop", "discard"):
            return
        if holder is not None and holder.generation <= generation:
            holder.abandon.set()
            if not self._lanes.withdraw(holder) and holder.is_pulling:
                self._ends.give_verdict(kernel_id, holder.generation, "", "")
                return
        self._lanes.submit_after(Claim(kernel_id, generation, "stop"), partial(self._ends.stop, grace))

    def look_soon(self, kernel_id: UUID, generation: int) -> None:
        """Check a kernel that may have ended: upload its log, report it and remove it."""
        holder = self._lanes.holder(kernel_id)
        if holder is None or holder.action == "start":
            self._lanes.submit_after(Claim(kernel_id, generation, "look"), self._ends.look)

    def discard_soon(self, kernel_id: UUID, generation: int) -> None:
        """Stop and remove an unwanted kernel without a report."""
        self._lanes.submit(Claim(kernel_id, generation, "discard"), self._ends.discard)

    def thaw_soon(self, kernel_id: UUID, generation: int) -> None:
        """Let the programs of a frozen kernel go on."""
        if isinstance(backend := self._backend, HomeStoring):
            self._lanes.submit(Claim(kernel_id, generation, "thaw"), lambda _: backend.thaw(kernel_id))

    def report_missing(self, kernel_id: UUID, generation: int) -> None:
        """Report that a kernel which the portal expects is not on this agent."""
        message = Message("The kernel is no longer on the agent: something outside the platform removed it.")
        self._lanes.submit(
            Claim(kernel_id, generation, "verdict"),
            lambda _: self._ends.give_verdict(kernel_id, generation, "container-missing", message),
        )

    def look_at_all(self) -> None:
        """Check every kernel that has ended according to the backend. Raises BackendError."""
        for one in self._backend.kernels():
            if not one.running:
                self.look_soon(one.kernel_id, one.generation)

    def give_up_overdue(self) -> None:
        """Log the starts that exceed the time of their specs.

        Nothing is reported before the engine answers: the portal would give their slots and devices to others while the
        kernels might still start. A late start is reported like any other; by then an impatient portal has ordered its
        end.
        """
        for claim in self._lanes.overdue(time.monotonic()):
            logger.warning("kernel %s: the engine has not started it within %.0f s", claim.kernel_id, claim.allowed)

    def sweep(self) -> None:
        """Let the backend remove leftovers of former kernels. Starts that have not created anything wait meanwhile."""
        self._starts.unswept.clear()
        try:
            live = self._roster.ids() | self._lanes.held()
            self._backend.sweep(live)
            self._manifests.sweep(live)
        finally:
            self._starts.unswept.set()

    def end_overfull(self) -> None:
        """Stop the kernels that exceed their disk limit. Raises BackendError."""
        for over in self._backend.overfull():
            claim = Claim(over.kernel_id, self._roster.generation(over.kernel_id), "look")
            self._lanes.submit(claim, partial(self._ends.stop_because, over.reason, over.message))

    def drain(self) -> None:
        """Start no kernels and give up pulls from now on. Ends continue."""
        self._starts.draining.set()
