"""The SSH gate as a process: one event loop, one listener, and the limits that hold before anybody has signed in."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncssh
from django.conf import settings

from backendai.gateways.site_keys import host_key, private_text
from backendai.sshgate.connection import GateServer, peer, quiet
from backendai.sshgate.entrances import Entrance
from backendai.sshgate.proxy_header import BadHeader, read_header
from backendai.sshgate.visit import ShellGuard

logger = logging.getLogger(__name__)

MOST_UNKNOWN, MOST_PER_ADDRESS, MOST_PER_PERSON = 64, 8, 32
LOGIN_SECONDS = 20.0
_BACKLOG = 128
_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes192-ctr", "aes256-ctr")
_MACS = ("hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com", "hmac-sha2-256", "hmac-sha2-512")


class Gate:
    """Takes connections. Those that have not signed in are counted by address, the others by person."""

    def __init__(self, host_key: str) -> None:
        self._guard = ShellGuard()
        self._unknown: Counter[str] = Counter()
        self._people: Counter[UUID] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._key = asyncssh.import_private_key(host_key)
        self._options: asyncssh.SSHServerConnectionOptions

    async def open(self) -> None:
        """Prepare what all connections share."""
        self._options = await asyncssh.SSHServerConnectionOptions.construct(
            server_factory=self._new_server,
            server_host_keys=[self._key],
            server_version="Backend.AI",
            encryption_algs=_CIPHERS,
            mac_algs=_MACS,
            compression_algs=("none",),
            password_auth=False,
            kbdint_auth=False,
            host_based_auth=False,
            gss_host=None,
            agent_forwarding=False,
            x11_forwarding=False,
            line_editor=False,
            encoding=None,
            login_timeout=LOGIN_SECONDS,
            keepalive_interval=30,
            keepalive_count_max=4,
        )

    async def accept(self, listener: socket.socket) -> None:
        """Take connections for ever."""
        loop = asyncio.get_running_loop()
        watcher = loop.create_task(self._guard.watch())
        try:
            while True:
                try:
                    connection, address = await loop.sock_accept(listener)
                except OSError as error:  # out of descriptors: some will be free again
                    logger.warning("no connection can be taken: %s", error)
                    await asyncio.sleep(0.2)
                    continue
                task = loop.create_task(self._serve(connection, str(address[0])))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        finally:
            watcher.cancel()
            self._guard.close()
            for task in self._tasks:
                task.cancel()

    async def _serve(self, connection: socket.socket, address: str) -> None:
        """Serve one connection until it has signed in; from then on it lives by itself."""
        connection.setblocking(False)
        known = address
        try:
            with self._counted(address) as is_welcome:
                if not is_welcome:
                    connection.close()
                    return
                if settings.SSH_PROXIES:
                    known = await read_header(connection, address, settings.SSH_PROXIES)
                peer.set(known)
                async with asyncio.timeout(LOGIN_SECONDS + 5):
                    await asyncssh.run_server(connection, options=self._options)
        except (OSError, asyncssh.Error, TimeoutError, BadHeader) as error:
            logger.debug("a connection came to nothing: %s", error)
            connection.close()

    @contextlib.contextmanager
    def _counted(self, address: str) -> Any:
        most = MOST_UNKNOWN if address in settings.SSH_PROXIES else MOST_PER_ADDRESS
        is_welcome = self._unknown.total() < MOST_UNKNOWN and self._unknown[address] < most
        self._unknown[address] += 1
        try:
            yield is_welcome
        finally:
            self._unknown[address] -= 1
            self._unknown += Counter()

    def _new_server(self) -> GateServer:
        return GateServer(self._guard, self._admit, self._leave)

    def _admit(self, entrance: Entrance) -> bool:
        if self._people[entrance.user_id] >= MOST_PER_PERSON:
            return False
        self._people[entrance.user_id] += 1
        return True

    def _leave(self, entrance: Entrance) -> None:
        self._people[entrance.user_id] -= 1
        self._people += Counter()


@asynccontextmanager
async def serving(listener: socket.socket) -> AsyncIterator[None]:
    """Serve on a listening socket until the context ends."""
    quiet()
    listener.setblocking(False)
    gate = Gate(private_text(host_key()))
    await gate.open()
    accepting = asyncio.create_task(gate.accept(listener))
    try:
        yield
    finally:
        accepting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await accepting


async def serve(host: str, port: int, *, shares_port: bool = False) -> None:
    """Serve until SIGTERM or SIGINT. ``shares_port``: other gates listen there too."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=_BACKLOG, reuse_port=shares_port)
    async with serving(listener):
        logger.info("SSH is served on %s:%s", host, port)
        await stop.wait()
