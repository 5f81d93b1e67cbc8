"""Many simulated nodes in one process: one clock, one call for all of them, no thread of their own.

The portal sees nodes like any others; only the way there is shared. What they simulate is in
``backends.simulated_kernel``.
"""

from __future__ import annotations

import heapq
import logging
import platform
import random
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from threading import Event
from uuid import UUID

from backendai.agent.accelerators.inventory import Accelerators
from backendai.agent.backends.abilities import capabilities_with
from backendai.agent.backends.simulated.backend import SimulatedBackend
from backendai.agent.kernel_index import KernelIndex
from backendai.agent.loop.usage import UsageSampler
from backendai.agent.portal.client import PortalRefused, PortalUnreachable
from backendai.base.core.slots import MILLI, Slots
from backendai.base.core.version import VERSION
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.messages import SyncUp
from bench.many_agents.client import FleetClient
from bench.many_agents.messages import FleetAnswer, FleetNode, FleetUp
from bench.many_agents.node import SimulatedNode

logger = logging.getLogger(__name__)

INTERVAL = 0.5
_MOST_NODES = 1000  # in one call
_MOST_LOGS = 2**20  # characters in one call, which the portal takes up to 5 MiB
_SYNC_SECONDS = 5.0
_LONGEST_REST = 10.0
_DEVICES = ("cuda.device", "cuda.shares")


class Fleet:
    """``interval``: seconds between two calls; with something to tell it is half of that. ``clock`` is the backend's.
    ``usage_interval``: seconds between two measurements of what a node's kernels pretend to use (0: none).

    ``on_key`` hears the portal's public key whenever a node has synced.
    """

    def __init__(
        self,
        client: FleetClient,
        backend: SimulatedBackend,
        roster: KernelIndex,
        *,
        gateway_url: str = "",
        interval: float = INTERVAL,
        usage_interval: float = 0.0,
        clock: Callable[[], float] = time.time,
        on_key: Callable[[str], None] = lambda key: None,
    ) -> None:
        self._client, self._backend, self._roster = client, backend, roster
        self._interval, self._clock, self._on_key = interval, clock, on_key
        self._usage_interval = usage_interval
        self._nodes: list[SimulatedNode] = []
        self._events: list[tuple[float, int, SimulatedNode, UUID]] = []
        self._numbers = count()
        self._called_at = 0.0
        self._failures = 0
        self._about = _about(backend, gateway_url)

    def add(self, tokens: Iterable[tuple[str, str]]) -> None:
        """Take in nodes by name and token; their syncs are spread over time."""
        for name, token in tokens:
            node = SimulatedNode(name, token, backend=self._backend, roster=self._roster, wake=self._wake)
            if self._usage_interval:
                node.sampler = UsageSampler(
                    self._backend, Accelerators(), interval=0.0, portal_now=self._client.now, clock=self._clock
                )
            self._nodes.append(node)

    def run(self, stopped: Event) -> None:
        """Simulate until ``stopped`` is set, then say good-bye: nothing new is to come."""
        while not stopped.is_set():
            self.turn()
            stopped.wait(self._rest())
        try:
            self._call_all(draining=True)
        except (PortalUnreachable, PortalRefused) as error:
            logger.info("the portal does not hear that these nodes stop: %s", error.message)

    def turn(self) -> None:
        """Let happen what is due, and call the portal if it is time."""
        self._let_happen()
        if self._clock() < self._next_call():
            return
        try:
            self._call_all()
            self._failures = 0
        except PortalUnreachable as error:
            self._failures += 1
            logger.warning("call failed, kernels go on: %s", error.message)
        except PortalRefused as error:
            self._failures += 1
            logger.warning("call refused: %s", error.message)
            self._nodes.append(self._nodes.pop(0))  # another one may be let in

    def health(self) -> dict[str, object]:
        """Return what the gateway's ``/healthz`` says."""
        return {
            "status": "ok",
            "nodes": len(self._nodes),
            "seconds_since_call": round(self._clock() - self._called_at, 1),
        }

    def _let_happen(self) -> None:
        now = self._clock()
        while self._events and self._events[0][0] <= now:
            _, _, node, kernel_id = heapq.heappop(self._events)
            node.look(kernel_id, now)

    def _wake(self, moment: float, node: SimulatedNode, kernel_id: UUID) -> None:
        heapq.heappush(self._events, (moment, next(self._numbers), node, kernel_id))

    def _next_call(self) -> float:
        if self._failures:
            return self._called_at + min(_LONGEST_REST, self._interval * 2.0**self._failures)
        hurry = any(node.has_words for node in self._nodes)
        return self._called_at + (self._interval / 2 if hurry else self._interval)

    def _rest(self) -> float:
        now = self._clock()
        event = self._events[0][0] if self._events else now + self._interval
        return max(min(event, self._next_call()) - now, 0.005)

    def _call_all(self, *, draining: bool = False) -> None:
        now = self._called_at = self._clock()
        some: list[tuple[SimulatedNode, FleetNode]] = []
        logs = 0
        for node in list(self._nodes):
            some.append((node, node.say(self._up(node, now, draining=draining), now)))
            logs += sum(len(tail.text) for tail in some[-1][1].logs)
            if len(some) == _MOST_NODES or logs > _MOST_LOGS:
                self._call(some)
                some, logs = [], 0
        if some:
            self._call(some)

    def _call(self, some: Sequence[tuple[SimulatedNode, FleetNode]]) -> None:
        down = self._client.fleet(FleetUp(nodes=[told for _, told in some]))
        now = self._clock()
        for (node, told), answer in zip(some, down.nodes, strict=True):
            node.hear(told, answer, now)
            if told.up is not None:
                self._plan_sync(node, told, answer, now)

    def _up(self, node: SimulatedNode, now: float, *, draining: bool) -> SyncUp | None:
        if now < node.sync_due and not draining:
            return None
        told = {"images": None} if node.told_images else {}
        listing = node.listing(now)
        usage = node.used(listing, now, every=self._usage_interval)
        return self._about.model_copy(update={"kernels": listing, "draining": draining, "usage": usage} | told)

    def _plan_sync(self, node: SimulatedNode, told: FleetNode, answer: FleetAnswer, now: float) -> None:
        if answer.down is None:
            node.sync_due = now + _SYNC_SECONDS
            return
        if node.sampler and told.up:
            node.sampler.told(told.up.usage)
        if node.sync_due:
            node.sync_due = now + answer.down.interval * random.uniform(0.9, 1.1)
        else:  # the first one: from now on they are spread
            node.sync_due = now + answer.down.interval * random.random()
        self._on_key(answer.down.public_key)


def _about(backend: SimulatedBackend, gateway_url: str) -> SyncUp:
    """Return what every node says about itself."""
    capacity = backend.capacity()
    images = backend.images()
    return SyncUp(
        boot_id="simulated",
        version=VERSION,
        backend=backend.name,
        architecture=platform.machine(),
        gateway_url=gateway_url,
        capacity=capacity.to_json(),
        devices=_devices(capacity),
        images=images,
        images_digest=" ".join(image.digest for image in images)[:64],
        notes=backend.notes(),
        capabilities=sorted(capabilities_with(backend) - {Capability.COMMIT, Capability.IMAGES}),
    )


def _devices(capacity: Slots) -> dict[str, list[str]]:
    """Return as many accelerators of each kind as the capacity counts."""
    return {slot: [f"SIM-{number}" for number in range(capacity[slot] // MILLI)] for slot in _DEVICES if capacity[slot]}
