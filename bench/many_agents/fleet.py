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

from pydantic import ValidationError

from backendai.agent.backends.abilities import capabilities_with
from backendai.agent.backends.simulated.backend import SimulatedBackend
from backendai.agent.portal.client import PortalClient, PortalRefused, PortalUnreachable
from backendai.base.core.slots import MILLI, Slots
from backendai.base.core.version import VERSION
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.messages import SyncUp
from bench.many_agents.messages import FleetAnswer, FleetDown, FleetNode, FleetUp
from bench.many_agents.node import SimulatedNode

logger = logging.getLogger(__name__)

INTERVAL = 0.5
_MOST_NODES = 1000  # in one call
_MOST_LOGS = 2**20  # characters in one call, which the portal takes up to 5 MiB
_SYNC_SECONDS, _CALL_SECONDS = 5.0, 60.0
_LONGEST_REST = 10.0
_DEVICES = ("cuda.device", "cuda.shares")


class FleetClient(PortalClient):
    """The portal over HTTP: one call for all nodes."""

    def fleet(self, up: FleetUp) -> FleetDown:
        """Say what the nodes have to say; returns the answers in their order. The first node's token opens the door.

        Raises PortalUnreachable, and PortalRefused with status 401 when the first node is not known any more.
        """
        self._headers = {"Authorization": f"Node {up.nodes[0].token}"}
        body = self._send("POST", "/fleet", up.model_dump_json(exclude_defaults=True), seconds=_CALL_SECONDS)
        try:
            down = FleetDown.model_validate_json(body)
        except ValidationError as error:
            raise PortalUnreachable(f"The portal's answer makes no sense: {error}") from error
        if len(down.nodes) != len(up.nodes):
            raise PortalUnreachable(f"The portal answered {len(down.nodes)} of {len(up.nodes)} nodes.")
        return down


class Fleet:
    """``interval``: seconds between two calls, half of it with something to tell. ``clock`` is the backend's."""

    def __init__(
        self,
        client: FleetClient,
        backend: SimulatedBackend,
        *,
        interval: float = INTERVAL,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._backend = client, backend
        self._interval, self._clock = interval, clock
        self._nodes: list[SimulatedNode] = []
        self._events: list[tuple[float, int, SimulatedNode, UUID]] = []
        self._numbers = count()
        self._called_at = 0.0
        self._failures = 0
        self._about = _about(backend)

    def add(self, tokens: Iterable[tuple[str, str]]) -> None:
        """Take in nodes by name and token; their syncs are spread over time."""
        self._nodes += [SimulatedNode(name, token, backend=self._backend, wake=self._wake) for name, token in tokens]

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
                self._plan_sync(node, answer, now)

    def _up(self, node: SimulatedNode, now: float, *, draining: bool) -> SyncUp | None:
        if now < node.sync_due and not draining:
            return None
        told = {"images": None} if node.told_images else {}
        return self._about.model_copy(update={"kernels": node.listing(now), "draining": draining} | told)

    def _plan_sync(self, node: SimulatedNode, answer: FleetAnswer, now: float) -> None:
        if answer.down is None:
            node.sync_due = now + _SYNC_SECONDS
            return
        share = random.uniform(0.9, 1.1) if node.sync_due else random.random()  # after the first one they are spread
        node.sync_due = now + answer.down.interval * share


def _about(backend: SimulatedBackend) -> SyncUp:
    """Return what every node says about itself."""
    capacity = backend.capacity()
    images = backend.images()
    return SyncUp(
        boot_id="simulated",
        version=VERSION,
        backend=backend.name,
        architecture=platform.machine(),
        gateway_url="",
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
