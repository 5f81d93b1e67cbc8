"""Orders about kernels, from wherever they come: hints, the sync loop, the watcher.

What this is not: it decides nothing. The portal says what is wanted, the backend what is there; an action brings one
kernel from here to there and tells the portal what became of it. Every order may be repeated, crossed or lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from uuid import UUID

from backendai.agent.backends.base import Backend
from backendai.agent.ends import DEFAULT_GRACE, Ends
from backendai.agent.lanes import Claim, Lanes
from backendai.agent.manifests import Manifests
from backendai.agent.portal import Portal
from backendai.agent.roster import Roster
from backendai.agent.starts import Starts
from backendai.core.messages import Message

logger = logging.getLogger(__name__)


class Kernels:
    """Puts actions on the lanes. Every method returns at once."""

    def __init__(
        self,
        backend: Backend,
        portal: Portal,
        *,
        agent: str,
        lanes: Lanes,
        roster: Roster,
        manifests: Manifests,
        on_pulled: Callable[[], None],
    ) -> None:
        self._backend, self._lanes, self._roster, self._manifests = backend, lanes, roster, manifests
        self._ends = Ends(backend, portal, roster)
        self._starts = Starts(
            backend, portal, roster, self._ends, agent=agent, save_manifest=manifests.save, on_pulled=on_pulled
        )

    def ask_readiness_of(self, listens: Callable[[UUID, int], bool]) -> None:
        """Ask this whether a program in a kernel listens on a port."""
        self._starts.listens = listens

    def when_unanswered(self, act: Callable[[], None]) -> None:
        """Call ``act`` whenever a start was spent on a portal that did not answer."""
        self._starts.on_unanswered = act

    def start_soon(self, kernel_id: UUID, generation: int) -> bool:
        """Get or adopt this kernel, if the portal still wants it then. Returns whether an action was queued."""
        if self._starts.draining.is_set():
            return False
        return self._lanes.submit(Claim(kernel_id, generation, "start"), self._starts.start)

    def stop_soon(self, kernel_id: UUID, generation: int, grace: float = DEFAULT_GRACE) -> None:
        """End this kernel and report it. A start of it that is under way gives up at its next chance. Only a registry
        that speaks gives one to a start that waits for its image: the end of that is reported at once."""
        holder = self._lanes.holder(kernel_id)
        if holder is not None and holder.action in ("stop", "discard"):
            return
        if holder is not None and holder.generation <= generation:
            holder.abandon.set()
            if holder.is_pulling:
                self._ends.give_verdict(kernel_id, holder.generation, "", "")
                return
        self._lanes.submit_after(Claim(kernel_id, generation, "stop"), partial(self._ends.stop, grace))

    def look_soon(self, kernel_id: UUID, generation: int) -> None:
        """Look at a kernel that may have ended by itself: keep its log, report it, remove it."""
        holder = self._lanes.holder(kernel_id)
        if holder is None or holder.action == "start":
            self._lanes.submit_after(Claim(kernel_id, generation, "look"), self._ends.look)

    def discard_soon(self, kernel_id: UUID, generation: int) -> None:
        """Stop and remove a kernel that nobody wants, without a word to the portal."""
        self._lanes.submit(Claim(kernel_id, generation, "discard"), self._ends.discard)

    def report_missing(self, kernel_id: UUID, generation: int) -> None:
        """Tell the portal that a kernel it counts on is not on this node."""
        message = Message("The kernel is no longer on the agent: something outside the platform removed it.")
        self._lanes.submit(
            Claim(kernel_id, generation, "verdict"),
            lambda _: self._ends.give_verdict(kernel_id, generation, "container-missing", message),
        )

    def look_at_all(self) -> None:
        """Look at every kernel that the backend says has ended. Raises BackendError."""
        for one in self._backend.kernels():
            if not one.running:
                self.look_soon(one.kernel_id, one.generation)

    def give_up_overdue(self) -> None:
        """Note which starts take longer than their specs allow. The portal is told nothing of them before the engine
        has answered: their slots and devices would go to others, and the kernels might still come up. One that comes
        up late is reported like any other, and a portal that has waited for too long has ordered its end by then."""
        for claim in self._lanes.overdue(time.monotonic()):
            logger.warning("kernel %s: the engine has not started it within %.0f s", claim.kernel_id, claim.allowed)

    def sweep(self) -> None:
        """Let the backend remove what belongs to no kernel; starts that have not made anything yet wait meanwhile."""
        self._starts.unswept.clear()
        try:
            live = self._roster.ids() | self._lanes.held()
            self._backend.sweep(live)
            self._manifests.sweep(live)
        finally:
            self._starts.unswept.set()

    def end_overfull(self) -> None:
        """End the kernels that hold more than they may. Raises BackendError."""
        for over in self._backend.overfull():
            claim = Claim(over.kernel_id, self._roster.generation(over.kernel_id), "look")
            self._lanes.submit(claim, partial(self._ends.stop_because, over.reason, over.message))

    def drain(self) -> None:
        """Begin no start and give up pulls from now on. Ends go on."""
        self._starts.draining.set()
