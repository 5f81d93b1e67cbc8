"""The sync loop: report the existing kernels, receive the desired ones, and order the differences."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

from backendai.agent.backends.base import Backend, BackendError
from backendai.agent.kernel_index import KernelIndex
from backendai.agent.kernel_queues import KernelQueues
from backendai.agent.loop.epoch import EpochGuard
from backendai.agent.loop.kernels import Kernels
from backendai.agent.loop.machine import Machine
from backendai.agent.loop.manifests import Manifests
from backendai.agent.loop.reconcile import Key, Orders, Reconciler
from backendai.agent.portal.client import Portal, PortalRefused, PortalUnreachable
from backendai.base.core.errors import PlatformError
from backendai.base.wire.messages import MOST_UNKNOWN, KernelSighting, SyncDown, UnknownKernel

logger = logging.getLogger(__name__)

_LONG_POLL_SECONDS = 10.0
_SWEEP_SECONDS = 30.0
_LONGEST_REST = 10.0
_LONGEST_REFUSED_REST = 300.0  # frequent retries are useless with a revoked token
_BUSY_REST = 0.5
_FIRST_INTERVAL = 5.0
_LEAST_INTERVAL = 0.5
_IN_TOUCH_SECONDS = 60.0  # after a longer gap the portal may have ended many sessions as lost


class SyncLoop:
    """Runs the sync in one thread. ``connected``: whether hints can arrive. Without hints, a sync is a long poll, and
    kernels start at the first sighting."""

    def __init__(
        self,
        backend: Backend,
        portal: Portal,
        kernels: Kernels,
        *,
        lanes: KernelQueues,
        roster: KernelIndex,
        machine: Machine,
        epoch: EpochGuard,
        manifests: Manifests,
        interval: float | None,
        connected: Callable[[], bool],
        on_answer: Callable[[SyncDown], None],
    ) -> None:
        self._backend, self._portal, self._kernels = backend, portal, kernels
        self._lanes, self._roster, self._machine = lanes, roster, machine
        self._connected, self._on_answer = connected, on_answer
        self._own_interval, self._interval = interval, interval or _FIRST_INTERVAL
        self._epoch, self._manifests = epoch, manifests
        self._unknown: set[Key] = set()
        self._heard_at: float | None = None
        self._reconciler = Reconciler()
        self._listing: list[KernelSighting] = []
        self._first, self._hurried, self._draining = True, False, False
        self._failures, self._refusals, self._trouble = 0, 0, ""  # since the last good answer
        self._swept_at = time.monotonic()
        self._poked, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="sync", daemon=True)
        self._farewell = threading.Thread(target=self._say_farewell, name="farewell", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def poke(self) -> None:
        """Sync now instead of at the next interval."""
        self._poked.set()

    def hurry(self) -> None:
        """Start kernels at the first sighting in the next sync. Call it when a hint was lost on an unanswered
        request."""
        self._hurried = True

    def drain(self) -> None:
        """Tell the portal at once to place nothing new here; everything else continues."""
        self._draining = True
        self._farewell.start()  # a thread of its own, as the loop may wait in a long poll
        self.poke()

    def stop(self, timeout: float) -> None:
        """End the loop. Waits up to ``timeout`` seconds for each thread, then leaves it."""
        self._stopped.set()
        self.poke()
        for thread in (self._farewell, self._thread):
            if thread.is_alive():
                thread.join(timeout)

    def sync_once(self) -> None:
        """Run one sync: list kernels, send them, act on the answer. Raises PortalUnreachable and PortalRefused. Orders
        nothing while the engine does not answer."""
        self._kernels.give_up_overdue()
        held, taken_at, fault = self._lanes.held(), time.monotonic(), ""
        try:
            self._listing = self._backend.kernels()
            self._roster.replace(self._listing, taken_at=taken_at)
        except BackendError as error:
            # The list of before goes up, so that the node counts as alive; nothing is concluded from the answer.
            fault = error.message
            logger.warning("the engine does not answer: %s", fault)
        up = self._machine.describe(
            self._listing, engine_fault=fault, draining=self._draining, wait=0.0 if held else self._patience()
        ).model_copy(update={"unknown": self._describe_unknown()})
        answer = self._portal.sync(up)
        in_touch = self._heard_at is not None and time.monotonic() - self._heard_at < _IN_TOUCH_SECONDS
        self._heard_at = time.monotonic()
        self._machine.told(up, want_images=answer.want_images)
        self._interval = self._own_interval or max(answer.interval, _LEAST_INTERVAL)
        self._on_answer(answer)
        self._unknown = {(one.kernel_id, one.generation) for one in answer.unknown}
        if fault:
            self._reconciler.forget()
            return
        self._epoch.hear(answer, self._listing)
        orders = self._reconciler.compare(
            self._listing,
            answer,
            held=held | self._lanes.held(),
            eager=self._first or self._hurried or not self._connected(),
            kept=self._epoch.kept,
            in_touch=in_touch,
        )
        self._order(orders)
        self._first = self._hurried = False
        if answer.want_images and up.images is None:
            self.poke()

    def _describe_unknown(self) -> list[UnknownKernel]:
        """Return details of the kernels that are kept or were unknown in the portal's last answer."""
        kept = self._epoch.kept
        return [
            UnknownKernel(
                kernel_id=one.kernel_id,
                generation=one.generation,
                running=one.running,
                kept=(one.kernel_id, one.generation) in kept,
                manifest=self._manifests.read(one.kernel_id, one.generation),
            )
            for one in self._listing
            if (one.kernel_id, one.generation) in self._unknown | kept
        ][:MOST_UNKNOWN]

    def _patience(self) -> float:
        """Return the seconds of the next long poll: 0 if hints arrive, as they make waiting needless."""
        return 0.0 if self._connected() or self._first or self._draining else _LONG_POLL_SECONDS

    def _order(self, orders: Orders) -> None:
        for order in orders.stop:
            self._kernels.stop_soon(order.kernel_id, order.generation, order.grace)
        for kernel_id, generation in orders.ended:
            self._kernels.look_soon(kernel_id, generation)
        for kernel_id, generation in orders.discard:
            self._kernels.discard_soon(kernel_id, generation)
        if orders.doubted:
            logger.error(
                "the portal calls %d running kernels over at once: they stay until an administrator decides",
                len(orders.doubted),
            )
            self._epoch.keep(orders.doubted)
        for kernel_id, generation in orders.missing:
            self._kernels.report_missing(kernel_id, generation)
        for kernel_id, generation in orders.thaw:
            self._kernels.thaw_soon(kernel_id, generation)
        for kernel_id, generation in orders.start:
            self._kernels.start_soon(kernel_id, generation)

    def _say_farewell(self) -> None:
        try:
            self._portal.sync(self._machine.describe(self._listing, engine_fault="", draining=True, wait=0.0))
        except PlatformError as error:
            logger.info("the portal does not hear that this agent stops: %s", error.message)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._poked.clear()
            started_at = time.monotonic()
            try:
                self.sync_once()
                self._failures = self._refusals = 0
                self._log_trouble("")
                self._sweep_when_due()
                self._end_overfull()
            except (PortalUnreachable, PortalRefused) as error:
                self._failures += 1
                self._refusals += isinstance(error, PortalRefused) and error.status in (401, 403)
                self._reconciler.forget()
                self._log_trouble(error.message if isinstance(error, PortalRefused) else "unreachable", error.message)
            except Exception:
                self._failures += 1
                logger.exception("sync failed")
            self._poked.wait(self._rest(time.monotonic() - started_at))

    def _log_trouble(self, trouble: str, message: str = "") -> None:
        """Log the reason of failed syncs, only when it changes: a refused agent keeps asking."""
        if trouble == self._trouble:
            return
        self._trouble = trouble
        if trouble:
            logger.warning("sync failed, kernels stay as they are: %s", message)
        else:
            logger.info("the portal takes syncs again")

    def _rest(self, spent: float) -> float:
        if self._failures:
            return self._rest_after_failures() * random.uniform(0.5, 1.0)
        if self._connected() or self._draining:
            return self._interval * random.uniform(0.9, 1.1)
        # An early answer to a long poll means work that may still be in progress: pause briefly.
        return 0.0 if spent >= _LONG_POLL_SECONDS else min(_BUSY_REST, self._interval)

    def _rest_after_failures(self) -> float:
        # Refusals count for themselves: a portal that was away may refuse once as it starts, which costs seconds only.
        failed, refused = (self._interval * 2.0 ** (min(count, 7) - 1) for count in (self._failures, self._refusals))
        return max(min(_LONGEST_REST, failed), min(_LONGEST_REFUSED_REST, refused))

    def _end_overfull(self) -> None:
        try:
            self._kernels.end_overfull()
        except BackendError as error:
            logger.warning("nothing is known of full disks: %s", error.message)

    def _sweep_when_due(self) -> None:
        if time.monotonic() - self._swept_at < _SWEEP_SECONDS:
            return
        self._swept_at = time.monotonic()
        try:
            self._kernels.sweep()
        except BackendError as error:
            logger.warning("nothing swept: %s", error.message)
