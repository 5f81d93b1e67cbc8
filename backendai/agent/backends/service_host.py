"""The interface of backends for services of kernels: the addresses of ports, and starting programs."""

from __future__ import annotations

import abc
import hashlib
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from socket import socket as Socket
from uuid import UUID

from backendai.base.process.slowness import allowed

ARGUMENTS = "BACKENDAI_APP_ARGUMENTS"  # a variable of launched programs, saved beside their logs
_MOST_ARGUMENTS = 64 * 1024
ANY_HOST = "0.0.0.0"  # noqa: S104  (what a server inside of a container listens on)
_FIRST = int(ipaddress.IPv4Address("127.64.0.1"))
_NUMBER = 2**22 - 2


def address_of(kernel_id: UUID) -> str:
    """Return a loopback address for a kernel without a network of its own: the same after a restart, and
    almost never equal for two kernels."""
    number = int.from_bytes(hashlib.sha256(kernel_id.bytes).digest()[:4]) % _NUMBER
    return str(ipaddress.IPv4Address(_FIRST + number))


@dataclass(frozen=True, slots=True)
class ServiceSource:
    """The image's definition file of a service (None: none) and the image's labels. ``waiting``: the environment of the
    service is being built, ``percent`` of it are done. ``fault``: the build failed."""

    definition: bytes | None
    labels: Mapping[str, str]
    waiting: str = ""
    fault: str = ""
    percent: int | None = None


class ServiceHost(abc.ABC):
    """Access to services in running kernels. All methods but ``connect`` block, and raise KernelGone or BackendError.
    ``carries``: the backend connects to ports itself, without an address. ``start_seconds``: the longest start of a
    service on a usual machine."""

    carries = False
    start_seconds = 60.0

    def longest_start(self) -> float:
        """Return the longest start of a service on this machine now, in seconds."""
        return allowed(self.start_seconds)

    @abc.abstractmethod
    def address(self, kernel_id: UUID) -> str:
        """Return the address at which this machine reaches the kernel's ports; empty if the kernel has none. Asks the
        engine each time, as an address may soon belong to another kernel."""

    def socket(self, kernel_id: UUID, service: str) -> str:
        """Return the path, inside the kernel, of a unix socket for the service; empty if the service uses a port."""
        return ""

    async def connect(self, kernel_id: UUID, port: int) -> Socket | None:
        """Return a socket connected to a port inside the kernel, if the backend ``carries``; None if nothing
        listens."""
        return None

    @abc.abstractmethod
    def source(self, kernel_id: UUID, service: str) -> ServiceSource:
        """Return the definition and the labels of a service from the kernel's image."""

    @abc.abstractmethod
    def launch(self, kernel_id: UUID, service: str, command: Sequence[str], environ: Mapping[str, str]) -> str:
        """Start the service's program in the kernel as the kernel's user; returns its handle. Ends a program of an
        earlier launch. The output is saved in the kernel."""

    @abc.abstractmethod
    def exit_code(self, handle: str) -> int | None:
        """Return the exit code of a launched program; None while it runs."""

    @abc.abstractmethod
    def log(self, kernel_id: UUID, service: str, *, limit: int) -> bytes:
        """Return the last ``limit`` bytes of the output of the service's program."""

    def arguments(self, kernel_id: UUID, service: str) -> str:
        """Return the value of ``ARGUMENTS`` at the last launch, by this agent or an earlier one; empty: unknown."""
        return self.log(kernel_id, f"{service}.arguments", limit=_MOST_ARGUMENTS).decode(errors="replace")
