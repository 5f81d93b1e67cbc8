"""The demand of a session: a list of requests, each of which one agent must hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any
from uuid import UUID

from backendai.base.core.slots import Slots
from backendai.scheduler.capacity.devices import KernelDevices, flaw_of
from backendai.scheduler.plan import Reason
from backendai.scheduler.rank import ORDINARY
from backendai.scheduler.snapshot import KernelView, SessionView, StorageNeed

DemandKey = tuple[object, ...]
_ANYWHERE: frozenset[UUID] = frozenset()
_NO_IMAGES: frozenset[str] = frozenset()


class Request:
    """Amounts that one agent must provide together, for ``kernels`` kernels.

    An empty ``architecture`` or ``designated`` allows any agent. ``node_images``: images that the agent must already
    have. ``storage``: storage hosts whose folders it must mount. ``joins``: whether it must join a network across
    agents. ``accelerators``: the requested amounts, by kernel. ``AgentStates.cost`` sets ``cost``, ``fields``,
    ``start`` and ``step``.
    """

    __slots__ = (
        "accelerators",
        "architecture",
        "cost",
        "designated",
        "fields",
        "group",
        "items",
        "joins",
        "kernels",
        "kinds",
        "names",
        "node_images",
        "start",
        "step",
        "storage",
        "wanted",
    )

    def __init__(
        self,
        wanted: Slots,
        kernels: int,
        architecture: str,
        designated: frozenset[UUID] = _ANYWHERE,
        node_images: frozenset[str] = _NO_IMAGES,
        accelerators: tuple[KernelDevices, ...] = (),
        storage: StorageNeed | None = None,
        joins: bool = False,
    ) -> None:
        self.joins = joins
        self.storage = storage
        self.wanted = wanted
        self.kernels = kernels
        self.architecture = architecture
        self.designated = designated
        self.node_images = node_images
        self.accelerators = accelerators
        self.items = tuple(wanted.items())
        self.names = frozenset(wanted)
        self.kinds = self.names - ORDINARY
        self.group = architecture, self.kinds
        self.cost: int | None = None
        self.fields: Sequence[int] = ()
        self.start: Any = None
        self.step: Any = None


class Demand:
    """All requests of a session: one for all kernels of a single-node session, or one for each kernel of a multi-node
    session. ``flaw``: why no agent can ever provide one of the amounts (None: an agent could). ``only``: the request if
    there is exactly one, and no flaw."""

    def __init__(self, requests: tuple[Request, ...], flaw: Reason | None = None) -> None:
        self.requests = requests
        self.flaw = flaw
        self.only = requests[0] if len(requests) == 1 and flaw is None else None

    @cached_property
    def total(self) -> Slots:
        """The sum of all requests."""
        return sum((request.wanted for request in self.requests), Slots())


def demand_keys(sessions: Iterable[SessionView]) -> list[DemandKey]:
    """Return a key for each session. The scheduler treats sessions with equal keys alike. Placement preferences are
    part of the key only if kernels may go to several agents."""
    return [
        (kernels[0].slots, kernels[0].architecture)
        if len(kernels := session.kernels) == 1
        and not session.designated
        and not kernels[0].node_image
        and session.storage is None
        else _unusual_key(session)
        for session in sessions
    ]


def demand_of(session: SessionView) -> Demand:
    """Return the requests of the session, in the order of its kernels."""
    flaw = next((flaw for kernel in session.kernels if (flaw := flaw_of(kernel.slots.items()))), None)
    if session.multi_node:
        joins = len(session.kernels) > 1
        requests = [_request(session, (kernel,), kernel.slots, joins=joins) for kernel in session.kernels]
        return Demand(tuple(requests), flaw)
    kernels = session.kernels
    wanted = kernels[0].slots if len(kernels) == 1 else session.total
    return Demand((_request(session, kernels, wanted),), flaw)


def request_of_all(session: SessionView, designated: frozenset[UUID]) -> Request:
    """Return one request for all kernels of the session. It can be placed on one of these agents, without a network."""
    return _request(session._replace(designated=designated), session.kernels, session.total)


def _request(session: SessionView, kernels: tuple[KernelView, ...], wanted: Slots, *, joins: bool = False) -> Request:
    """Return one request for these kernels."""
    images = {kernel.node_image for kernel in kernels if kernel.node_image}
    return Request(
        wanted,
        len(kernels),
        next(iter(architectures_of(kernels)), ""),
        session.designated,
        frozenset(images) if images else _NO_IMAGES,
        _accelerators(kernels),
        session.storage,
        joins,
    )


def architectures_of(kernels: tuple[KernelView, ...]) -> list[str]:
    """Return the architectures that the kernels require, sorted."""
    return sorted({kernel.architecture for kernel in kernels if kernel.architecture})


def _unusual_key(session: SessionView) -> DemandKey:
    asked = tuple([kernel[1:] for kernel in session.kernels])
    if not session.multi_node or len(session.kernels) == 1:
        return False, asked, session.designated, session.storage
    tastes = session.placement, session.launch if session.placement else "", session.avoid_agents
    return True, asked, session.designated, session.storage, tastes


def _accelerators(kernels: Iterable[KernelView]) -> tuple[KernelDevices, ...]:
    return tuple(
        tuple((name, amount) for name, amount in kernel.slots.items() if name not in ORDINARY) for kernel in kernels
    )
