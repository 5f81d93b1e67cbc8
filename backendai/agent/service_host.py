"""What a backend does for the services of its kernels: where their ports are, and how their programs are started."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from socket import socket as Socket
from uuid import UUID

ARGUMENTS = "BACKENDAI_APP_ARGUMENTS"  # a variable of the launched program, written down beside its log
_MOST_ARGUMENTS = 64 * 1024


@dataclass(frozen=True, slots=True)
class ServiceSource:
    """What an image says about a service: its definition file (None: it has none) and the image's labels. ``waiting``
    and ``fault``: what it starts from is being made, or could not be made."""

    definition: bytes | None
    labels: Mapping[str, str]
    waiting: str = ""
    fault: str = ""


class ServiceHost(abc.ABC):
    """Reaches into running kernels. Every method but ``connect`` blocks, and raises KernelGone or BackendError.
    ``carries``: it has a way of its own to ports that no address leads to."""

    carries = False

    @abc.abstractmethod
    def address(self, kernel_id: UUID) -> str:
        """Return the address at which this machine reaches the kernel's ports, asked anew from the engine: an address
        that was true a moment ago may belong to somebody else by now. Empty: the kernel has none of its own."""

    def socket(self, kernel_id: UUID, service: str) -> str:
        """Return the unix socket, as the kernel names it, on which the service may listen; empty: it has a port."""
        return ""

    async def connect(self, kernel_id: UUID, port: int) -> Socket | None:
        """Return a socket that is joined to a port inside the kernel, where it ``carries``; None: nobody listens."""
        return None

    @abc.abstractmethod
    def source(self, kernel_id: UUID, service: str) -> ServiceSource:
        """Return what the kernel's image says about a service."""

    @abc.abstractmethod
    def launch(self, kernel_id: UUID, service: str, command: Sequence[str], environ: Mapping[str, str]) -> str:
        """Start the service's program in the kernel, as its user, instead of one that an earlier launch left; returns
        its handle. What it writes is kept in the kernel."""

    @abc.abstractmethod
    def exit_code(self, handle: str) -> int | None:
        """Return how a launched program ended, None while it runs."""

    @abc.abstractmethod
    def log(self, kernel_id: UUID, service: str, *, limit: int) -> bytes:
        """Return the last ``limit`` bytes that the service's program has written."""

    def arguments(self, kernel_id: UUID, service: str) -> str:
        """Return the value of ``ARGUMENTS`` at the last launch, by this agent or an earlier one; empty: unknown."""
        return self.log(kernel_id, f"{service}.arguments", limit=_MOST_ARGUMENTS).decode(errors="replace")
