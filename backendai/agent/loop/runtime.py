"""Assembles the agent from its parts, and starts and stops them in order."""

from __future__ import annotations

import logging
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from backendai.agent.accelerators.inventory import Accelerators
from backendai.agent.backends.abilities import Mounting
from backendai.agent.backends.base import Backend, BackendError
from backendai.agent.counts import watch_kernels
from backendai.agent.gateway.guest_links import GuestLinks
from backendai.agent.gateway.ports import Ports
from backendai.agent.gateway.server import Gateway, GatewayView
from backendai.agent.gateway.thread import GatewayThread
from backendai.agent.jobs.kinds import handlers_for
from backendai.agent.jobs.running import NodeJobs
from backendai.agent.kernel_index import KernelIndex
from backendai.agent.kernel_queues import KernelQueues
from backendai.agent.loop.epoch import EpochGuard
from backendai.agent.loop.kernels import Kernels
from backendai.agent.loop.machine import Machine
from backendai.agent.loop.manifests import Manifests
from backendai.agent.loop.sync import SyncLoop
from backendai.agent.loop.usage import UsageSampler
from backendai.agent.portal.client import Portal
from backendai.agent.settings.config import NodeSettings
from backendai.agent.settings.credentials import Credentials, save_credentials
from backendai.agent.settings.marks import is_marked_native
from backendai.base.wire.messages import SyncDown
from backendai.base.wire.node_jobs import NodeJobOrder

_LONGEST_REST = 30.0


class Watcher:
    """A thread that reads the backend's events. It reconnects, with growing pauses, when the stream ends."""

    def __init__(self, backend: Backend, kernels: Kernels, roster: KernelIndex, *, poke: Callable[[], None]) -> None:
        self._backend, self._kernels, self._roster, self._poke = backend, kernels, roster, poke
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ignore further events; the thread ends with its stream."""
        self._stopped.set()

    def _run(self) -> None:
        rest = 1.0
        while not self._stopped.is_set():
            try:
                for event in self._backend.watch():
                    rest = 1.0
                    if self._stopped.is_set():
                        return
                    self._kernels.look_soon(event.kernel_id, self._roster.generation(event.kernel_id))
            except BackendError as error:
                logger.warning("the engine's events broke off: %s", error.message)
            except Exception:
                logger.exception("watching failed")
            self._stopped.wait(rest * random.uniform(0.5, 1.0))
            rest = min(rest * 2, _LONGEST_REST)
            self._poke()  # the next sync finds what the lost events would have reported


logger = logging.getLogger(__name__)

DRAIN_SECONDS = 25.0
_LAST_WORDS_SECONDS = 5.0
_PROBE_SECONDS = 20.0
# With fewer simultaneous starts the engine idles during requests to the portal; more only add latency.
_STARTS_PER_CORE, _STARTS_PER_FEW_CORES, _ENOUGH_STARTS = 2, 4, 32
_PULLS = 3
_LEAST_ENDS = 16  # most wait for a main process during its grace period


class AgentRuntime:
    """One running agent. ``connected`` is set while the broker can deliver hints."""

    def __init__(
        self,
        settings: NodeSettings,
        credentials: Credentials,
        *,
        backend: Backend,
        portal: Portal,
        accelerators: Accelerators | None = None,
        listener: socket.socket,
        gateway_url: str,
    ) -> None:
        self.connected = threading.Event()
        self._settings, self._credentials, self._backend = settings, credentials, backend
        self._synced_at, self._draining, self._accelerators = 0.0, False, accelerators or Accelerators()
        starts = backend.starts_at_once or _starts_at_once(os.cpu_count() or 1)
        self._lanes = KernelQueues(starts=starts, pulls=_PULLS, ends=max(_LEAST_ENDS, starts))
        roster = KernelIndex(is_complete=False)
        self._is_native = is_marked_native(settings.data) and backend.name == "process"
        self._sampler = _sampler(settings, backend, self._accelerators, portal)
        links = GuestLinks(backend.guests)
        machine = _machine(settings, backend, self._accelerators, self._sampler, gateway_url, links)
        manifests = Manifests(settings.data / "manifests")
        self.kernels = Kernels(
            backend,
            portal,
            agent=credentials.name,
            lanes=self._lanes,
            roster=roster,
            manifests=manifests,
            on_pulled=machine.images_changed,
        )
        handlers = [handler(backend, machine.images_changed) for handler in handlers_for(backend)]
        self.jobs = NodeJobs(handlers, portal, self._lanes)
        self.sync = self._make_sync_loop(portal, roster, machine, manifests)
        self.kernels.when_unanswered(self.sync.hurry)
        self._watcher = Watcher(backend, self.kernels, roster, poke=self.sync.poke)
        self._gateway = GatewayThread(Gateway(self._view(roster, portal, links)), listener, settings.serving_grace)
        watch_kernels(lambda: len(roster.ids()), self._lanes.number)
        self._ports = Ports(backend.services, links) if backend.services else None
        self.kernels.ask_readiness_of(self._listens)

    def _view(self, roster: KernelIndex, portal: Portal, links: GuestLinks) -> GatewayView:
        return GatewayView(
            self._backend,
            roster,
            public_key=lambda: self._credentials.public_key,
            now=portal.now,
            health=self.health,
            links=links,
            scrapers=self._settings.scrapers,
        )

    def _make_sync_loop(self, portal: Portal, roster: KernelIndex, machine: Machine, manifests: Manifests) -> SyncLoop:
        return SyncLoop(
            self._backend,
            portal,
            self.kernels,
            lanes=self._lanes,
            roster=roster,
            machine=machine,
            epoch=EpochGuard(self._settings.data),
            manifests=manifests,
            interval=self._settings.sync_interval,
            connected=self.connected.is_set,
            on_answer=self._heed,
        )

    def start(self) -> None:
        """Start the gateway, then the sync loop and the watcher. Raises the error that keeps the gateway from
        opening."""
        self._gateway.start()
        self._accelerators.start()
        if isinstance(self._backend, Mounting):
            self._backend.watch_storage(self.sync.poke)
        self.sync.start()
        self._sampler.start()
        self._watcher.start()

    def stop(self, timeout: float = DRAIN_SECONDS) -> None:
        """Accept no new work, let running actions finish within ``timeout`` seconds, then stop all parts.

        Containers continue. Native-process kernels end with this process and are reported. A second call does nothing.
        """
        if self._draining:
            return
        self._draining = True
        self.kernels.drain()
        self.jobs.drain()
        self.sync.drain()
        if not self._lanes.wait_idle(timeout):
            logger.warning("%d kernels were still worked on; the next start takes them up", len(self._lanes.held()))
        self._gateway.stop()
        self._watcher.stop()
        self._sampler.stop()
        try:
            self._backend.close()
            self.kernels.look_at_all()
        except BackendError as error:
            logger.info("the last look failed: %s", error.message)
        self._lanes.wait_idle(min(timeout, _LAST_WORDS_SECONDS))
        self.sync.stop(timeout=1.0)
        self._accelerators.stop()

    def start_kernel(self, kernel_id: UUID, generation: int) -> None:
        """Handle a hint: start this kernel. The spec is fetched from the portal, so a wrong hint does nothing."""
        self.kernels.start_soon(kernel_id, generation)

    def begin_job(self, order: NodeJobOrder) -> None:
        """Handle a hint: begin this job. The job is fetched from the portal, so a wrong hint does nothing."""
        self.jobs.begin_soon(order)

    def health(self) -> dict[str, object]:
        """Return the body of ``/healthz``."""
        since = round(time.monotonic() - self._synced_at, 1) if self._synced_at else None
        return {
            "status": "draining" if self._draining else "ok",
            "agent": self._credentials.name,
            "seconds_since_sync": since,
            "broker": self.connected.is_set(),
        }

    def _heed(self, answer: SyncDown) -> None:
        self._synced_at = time.monotonic()
        if self._must_change_backend():
            logger.warning("ending, to be started again with the other backend")
            os.kill(os.getpid(), signal.SIGTERM)
            return
        for order in answer.jobs:
            self.jobs.begin_soon(order)
        if answer.public_key and answer.public_key != self._credentials.public_key:
            self._credentials = replace(self._credentials, public_key=answer.public_key)
            save_credentials(self._settings.data, self._credentials)

    def _listens(self, kernel_id: UUID, port: int) -> bool:
        """Return whether a program in the kernel listens on the port; True if the backend cannot check ports."""
        if self._ports is None:
            return True
        try:
            return self._gateway.run(self._ports.answers(kernel_id, "", port), timeout=_PROBE_SECONDS)
        except BackendError as error:
            return error.code == "apps-impossible"
        except TimeoutError:
            return False

    def _must_change_backend(self) -> bool:
        """Return whether the agent's mark has changed and no kernel would end with its backend. False while the engine
        does not answer, as it may run kernels."""
        if is_marked_native(self._settings.data) == self._is_native or self._draining or self._lanes.held():
            return False
        try:
            return not self._backend.kernels()
        except BackendError:
            return False


def _starts_at_once(cores: int) -> int:
    return max(_STARTS_PER_CORE * cores, min(_STARTS_PER_FEW_CORES * cores, _ENOUGH_STARTS))


def _sampler(settings: NodeSettings, backend: Backend, accelerators: Accelerators, portal: Portal) -> UsageSampler:
    return UsageSampler(backend, accelerators, interval=settings.usage_interval, portal_now=portal.now)


def _machine(
    settings: NodeSettings,
    backend: Backend,
    accelerators: Accelerators,
    sampler: UsageSampler,
    gateway_url: str,
    links: GuestLinks,
) -> Machine:
    return Machine(
        backend,
        accelerators,
        offered=settings.offered,
        gateway_url=gateway_url,
        disk_reserve=settings.disk_reserve,
        sampler=sampler,
        working=links.working,
    )
