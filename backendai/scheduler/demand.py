"""What a session asks for, in the form the scheduler compares: requests that each go to one agent."""

from __future__ import annotations

from backendai.core.slots import Slots
from backendai.scheduler.snapshot import KernelView, SessionView

DemandKey = tuple[bool, tuple[tuple[Slots, str], ...]]


class Request:
    """Amounts that one agent must give at once, for ``kernels`` kernels; no architecture means any."""

    __slots__ = ("architecture", "items", "kernels", "names", "wanted")

    def __init__(self, wanted: Slots, kernels: int, architecture: str) -> None:
        self.wanted = wanted
        self.kernels = kernels
        self.architecture = architecture
        self.items = tuple(wanted.items())
        self.names = frozenset(wanted)


class Demand:
    """All requests of a session: one for the sum of a single-node session, one per kernel of a multi-node one."""

    __slots__ = ("requests",)

    def __init__(self, requests: tuple[Request, ...]) -> None:
        self.requests = requests

    @property
    def total(self) -> Slots:
        """What all requests ask for together."""
        return sum((request.wanted for request in self.requests), Slots())


def demand_key(session: SessionView) -> DemandKey:
    """Return what two sessions have in common when the scheduler need not tell them apart."""
    return session.multi_node, tuple((kernel.slots, kernel.architecture) for kernel in session.kernels)


def demand_of(session: SessionView) -> Demand:
    """Return the requests of the session, in the order of its kernels."""
    if session.multi_node:
        return Demand(tuple(Request(kernel.slots, 1, kernel.architecture) for kernel in session.kernels))
    architecture = next(iter(architectures_of(session.kernels)), "")
    return Demand((Request(session.total, len(session.kernels), architecture),))


def architectures_of(kernels: tuple[KernelView, ...]) -> list[str]:
    """Return the architectures that the kernels insist on, sorted."""
    return sorted({kernel.architecture for kernel in kernels if kernel.architecture})
