"""The agent's side of the guest agents: a socket for each kernel, to which its guest connects.

The guest connects from inside, so no program in a kernel can impersonate the agent, and messages on a kernel's socket
concern only that kernel. The agent opens no path and takes no file descriptor that comes from a kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import socket
import time
from pathlib import Path
from uuid import UUID

from backendai.agent.backends.base import BackendError, with_cause
from backendai.agent.backends.guest_host import PROGRAM, GuestHost, InProcessGuests, program
from backendai.agent.guest.link.sockets import SOCKET, listen
from backendai.base.core.messages import Message
from backendai.base.process.slowness import allowed

logger = logging.getLogger(__name__)

_REDIAL_SECONDS = 0.6  # within this time a guest of an earlier agent connects again
_DIAL_SECONDS = 5.0
_MOST_UNCLAIMED = 32
_LARGEST_GREETING, _LARGEST_HEARING = 4096, 2**16
_HEARD_EVERY = 0.1
_BELIEVED_SECONDS = 60.0  # a guest reports every 20 s; a stopped process reports nothing
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class GuestMissing(BackendError):
    """No guest runs in the kernel, or it does not answer."""

    code = "no-guest"


class GuestLinks:
    """The connections to all guests of an agent. Belongs to one event loop; only ``working`` is thread-safe."""

    def __init__(self, host: GuestHost | None) -> None:
        self._host = host
        self._links: dict[UUID, _Link] = {}
        self._looked_at: set[UUID] = set()

    def working(self) -> set[UUID]:
        """Return the kernels whose guests reported running code within the last minute."""
        if isinstance(self._host, InProcessGuests):
            return self._host.working()
        return {kernel_id for kernel_id, link in list(self._links.items()) if link.works}

    async def take_up(self, kernels: set[UUID]) -> None:
        """Listen for guests that an earlier agent started. Their running code is then reported without a request."""
        if self._host is None or isinstance(self._host, InProcessGuests):
            return
        self._looked_at &= kernels
        for kernel_id in kernels - self._looked_at - set(self._links):
            self._looked_at.add(kernel_id)
            with contextlib.suppress(BackendError, OSError):
                if await asyncio.to_thread(self._host.was_launched, kernel_id):
                    folder = await asyncio.to_thread(self._host.folder, kernel_id)
                    link = self._links.setdefault(kernel_id, _Link(folder))
                    async with link.starting:
                        await link.listen(folder)

    async def open(self, kernel_id: UUID) -> Stream:
        """Return a connection for one question; starts the guest if none is connected. Raises BackendError."""
        if self._host is None:
            raise GuestMissing("This agent cannot run code in its sessions.", code="execution-impossible")
        if isinstance(self._host, InProcessGuests):
            return await self._host.open(kernel_id)
        link = self._links.get(kernel_id)
        if link is None:
            folder = await asyncio.to_thread(self._host.folder, kernel_id)
            link = self._links.setdefault(kernel_id, _Link(folder))
        async with link.starting:
            if not link.is_dialled:
                await self._start(kernel_id, link)
        return await link.open()

    def forget(self, kernels: set[UUID]) -> None:
        """Close the sockets of all kernels that are not in ``kernels``."""
        for kernel_id in set(self._links) - kernels:
            self._links.pop(kernel_id).close()

    def close(self) -> None:
        """Close every socket; the guests and their programs continue."""
        self.forget(set())

    async def _start(self, kernel_id: UUID, link: _Link) -> None:
        assert self._host is not None and not isinstance(self._host, InProcessGuests)
        folder = await asyncio.to_thread(self._host.folder, kernel_id)
        try:
            await link.listen(folder)
            if await link.wait(_REDIAL_SECONDS):
                return
            await asyncio.to_thread(_furnish, folder)
        except OSError as error:
            await asyncio.to_thread(self._host.folder, kernel_id)  # raises KernelGone if the kernel has just ended
            raise GuestMissing("The socket for the session cannot be made: {error}", error=str(error)) from error
        await asyncio.to_thread(self._host.launch, kernel_id)
        began = time.monotonic()
        # The limit is looked at again when it is over: a machine is often busy because of this and other starts.
        while (left := began + (longest := self._host.longest_start()) - time.monotonic()) > 0:
            if await link.wait(left):
                return
        text = Message(
            "The guest agent did not start within {seconds} seconds: it needs Python 3.8 or newer in the image "
            "(python3).",
            seconds=f"{longest:.0f}",
        )
        raise GuestMissing(with_cause(text), code="guest-does-not-start")


class _Link:
    """One kernel's socket, its guest's control connection, and the streams that are being opened."""

    def __init__(self, folder: Path) -> None:
        self.starting = asyncio.Lock()
        self._folder = folder
        self._server: asyncio.Server | None = None
        self._control: asyncio.StreamWriter | None = None
        self._dialled = asyncio.Event()
        self._wanted: dict[str, asyncio.Future[Stream]] = {}
        self._unclaimed = 0
        self._works_until = 0.0

    @property
    def works(self) -> bool:
        """Whether the guest reported running code within the last minute."""
        return time.monotonic() < self._works_until

    @property
    def is_dialled(self) -> bool:
        """Whether a guest is connected."""
        return self._dialled.is_set()

    async def listen(self, folder: Path) -> None:
        """Listen in the folder, if the socket does not exist. Raises OSError."""
        if self._server is not None and (folder / SOCKET).exists():
            return
        self.close()
        listener = await asyncio.to_thread(_listener, folder)
        self._server = await asyncio.start_unix_server(self._greet, sock=listener, limit=2**16)

    async def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for a guest's connection; returns whether a guest is connected."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._dialled.wait(), seconds)
        return self.is_dialled

    async def open(self) -> Stream:
        """Return a new connection, which the guest opens on request. Raises GuestMissing."""
        name, wanted = secrets.token_hex(8), asyncio.get_running_loop().create_future()
        self._wanted[name] = wanted
        try:
            if self._control is None:
                raise GuestMissing("The guest agent of the session has just ended: try again.")
            self._control.write(json.dumps({"open": name}).encode() + b"\n")
            stream: Stream = await asyncio.wait_for(wanted, allowed(_DIAL_SECONDS))
        except (TimeoutError, OSError) as error:
            self._hang_up()
            raise GuestMissing("The guest agent of the session does not answer: try again.") from error
        finally:
            del self._wanted[name]
        return stream

    def close(self) -> None:
        """Close the socket and the control connection."""
        self._hang_up()
        if self._server is not None:
            self._server.close()
            self._server = None

    def _hang_up(self) -> None:
        if self._control is not None:
            self._control.close()
        self._control = None
        self._works_until = 0.0
        self._dialled.clear()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Accept one connection of the kernel if it is the control connection or a requested stream; else close it."""
        if self._unclaimed >= _MOST_UNCLAIMED:
            writer.close()
            return
        self._unclaimed += 1
        try:
            line = await asyncio.wait_for(reader.readline(), allowed(_DIAL_SECONDS))
            said = json.loads(line) if len(line) <= _LARGEST_GREETING else {}
            name = said.get("stream") if isinstance(said, dict) else None
        except (ValueError, TimeoutError, OSError, RecursionError):
            writer.close()
            return
        finally:
            self._unclaimed -= 1
        wanted = self._wanted.get(name) if isinstance(name, str) else None
        if wanted is not None and not wanted.done():
            wanted.set_result((reader, writer))
        elif isinstance(said, dict) and "hello" in said:
            await self._keep(reader, writer)
        else:
            writer.close()

    async def _keep(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read the control connection until it ends; a later control connection replaces it."""
        self._hang_up()
        self._control = writer
        self._dialled.set()
        rest = b""
        with contextlib.suppress(OSError, ValueError, RecursionError, asyncio.CancelledError):
            while self._control is writer and (heard := await reader.read(_LARGEST_HEARING)):
                *lines, rest = (rest + heard).split(b"\n")
                # Only the last line is parsed, as a guest may have written without limit before it ended.
                said = json.loads(lines[-1]) if lines and len(lines[-1]) <= _LARGEST_GREETING else None
                if self._control is writer and isinstance(said, dict):
                    self._works_until = time.monotonic() + _BELIEVED_SECONDS if said.get("works") is True else 0.0
                if len(rest) > _LARGEST_GREETING:
                    break
                await asyncio.sleep(_HEARD_EVERY)  # limits the processor time for a guest that writes without limit
        if self._control is writer:
            self._hang_up()
        writer.close()


def _furnish(folder: Path) -> None:
    """Write this version of the guest's program into the folder."""
    draft = folder / f".{PROGRAM}"
    draft.write_bytes(program())
    draft.chmod(0o644)
    draft.replace(folder / PROGRAM)


def _listener(folder: Path) -> socket.socket:
    """Return a socket that listens in the folder, and that every user of the kernel can connect to."""
    (folder / SOCKET).unlink(missing_ok=True)
    listener = listen(folder / SOCKET, 64)
    (folder / SOCKET).chmod(0o666)  # only the agent and the kernel have access to the folder
    listener.setblocking(False)
    return listener
