"""Connects to ports of kernels: at the kernel's address, else through the guest agent inside.

Many servers listen on the loopback only, and native kernels have no address of their own. In both cases the guest, a
process of the session, connects, so that only ports which the session's user can reach are reached.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from uuid import UUID

from backendai.agent.backends.base import BackendError, KernelGone
from backendai.agent.backends.service_host import ServiceHost
from backendai.agent.gateway.guest_links import GuestLinks
from backendai.base.process.slowness import allowed
from backendai.base.wire.splice import Side

logger = logging.getLogger(__name__)

_DIAL_SECONDS = 5.0
_GUEST_SECONDS = 10.0  # includes the start of the guest
_PAUSE_SECONDS = 60.0  # pause before a guest that did not answer is tried again: some images have no Python


class NotListening(BackendError):
    """Nothing listens on the port."""

    code = "app-not-listening"


class GuestSide(Side):
    """A connection through a guest. It keeps the writer, as a garbage-collected writer closes its connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        super().__init__(writer.transport.get_protocol())
        self._writer = writer
        writer.transport.set_protocol(self)
        self.connection_made(writer.transport)


class Ports:
    """The ports of one agent's kernels; without ``links`` only those at an address. Belongs to one event loop."""

    def __init__(
        self, host: ServiceHost, links: GuestLinks | None = None, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._host, self._links, self._now = host, links, now
        self._silent: dict[UUID, float] = {}

    async def answers(self, kernel_id: UUID, service: str, port: int, *, from_inside: bool = True) -> bool:
        """Return whether a program listens on the port. Without ``from_inside`` the guest is asked only if the kernel
        has no address. Raises KernelGone, BackendError."""
        address = await asyncio.to_thread(self._host.address, kernel_id)
        side = await _connected(address, port) if address else None
        try:
            if side is None and (from_inside or not address):
                side = await self._from_inside(kernel_id, service, port, is_only_way=not address)
        except NotListening:
            return False
        if side is not None:
            side.abort()
        return side is not None

    async def dial(self, kernel_id: UUID, service: str, port: int) -> Side:
        """Return a connection to the port. Checks after connecting that the address still belongs to the kernel. Raises
        NotListening, KernelGone, BackendError."""
        address = await asyncio.to_thread(self._host.address, kernel_id)
        if address and (side := await _connected(address, port)) is not None:
            return await self._checked(kernel_id, address, side)
        return await self._from_inside(kernel_id, service, port, is_only_way=not address)

    async def _checked(self, kernel_id: UUID, address: str, side: Side) -> Side:
        try:
            if await asyncio.to_thread(self._host.address, kernel_id) != address:
                raise KernelGone("The kernel has moved.")
        except BaseException:
            side.abort()
            raise
        return side

    async def _from_inside(self, kernel_id: UUID, service: str, port: int, *, is_only_way: bool) -> Side:
        nothing = NotListening("Nothing is listening on port {port}.", port=port)
        if self._host.carries:
            joined = await self._host.connect(kernel_id, port)
            if joined is None:
                raise nothing
            return (await asyncio.get_running_loop().create_connection(Side, sock=joined))[1]
        if self._links is None or self._silent.get(kernel_id, 0.0) > self._now():
            raise nothing
        socket = await asyncio.to_thread(self._host.socket, kernel_id, service)
        try:
            async with asyncio.timeout(allowed(_GUEST_SECONDS)):
                return await self._through_guest(kernel_id, {"op": "dial", "port": port, "socket": socket})
        except NotListening:
            raise
        except (TimeoutError, OSError, BackendError) as error:
            self._silent = {key: until for key, until in self._silent.items() if until > self._now()}
            if is_only_way:
                raise _unreachable(error) from error
            logger.info("the ports of kernel %s are not reached from inside: %s", kernel_id, error)
            self._silent[kernel_id] = self._now() + _PAUSE_SECONDS
            raise nothing from error

    async def _through_guest(self, kernel_id: UUID, order: dict[str, object]) -> Side:
        assert self._links is not None
        reader, writer = await self._links.open(kernel_id)
        try:
            writer.write(json.dumps(order).encode() + b"\n")
            said = json.loads(await reader.readline() or b"{}")
            if error := said.get("error"):
                raise NotListening(str(error["message"]))
            side = GuestSide(writer)
            writer.write(b"\n")
            return side
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            writer.transport.abort()
            raise NotListening("The guest agent of the session answers nonsense.") from error
        except BaseException:
            writer.transport.abort()
            raise


async def _connected(address: str, port: int) -> Side | None:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(allowed(_DIAL_SECONDS)):
            return (await loop.create_connection(Side, address, port))[1]
    except OSError:
        return None


def _unreachable(error: Exception) -> BackendError:
    if isinstance(error, BackendError):
        return error
    return BackendError("The guest agent of the session does not answer: try again.", code="no-guest")
