"""Limits connections of the app proxy: the time for the first headers, and the number per address."""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from aiohttp import web
from django.conf import settings

from backendai.base.process.open_files import raise_open_files
from backendai.gates.appproxy.counts import connections

logger = logging.getLogger(__name__)

HEAD_SECONDS = 10.0
IDLE_SECONDS = 60.0  # between two requests; a head that stands still is cut by then, too
MOST_OF_ADDRESS = 1000
_SHARE = 4  # of the files that the process may open: no address gets more than one in four


class LimitedServer(web.Server):
    """Counts connections by address. Configured proxies have no limit, as all visitors connect through them."""

    def __init__(self, handler: Any, *, handler_cancellation: bool, **options: Any) -> None:
        super().__init__(handler, handler_cancellation=handler_cancellation)
        self._options = options
        self._of_address: Counter[str] = Counter()
        self._most = min(MOST_OF_ADDRESS, raise_open_files() // _SHARE)
        self._numbers = itertools.count(1)
        self._proxies = [ipaddress.ip_network(proxy) for proxy in settings.PROXIES]

    def __call__(self) -> web.RequestHandler:
        """Return the protocol object of a new connection."""
        loop = asyncio.get_running_loop()
        return LimitedHandler(self, loop=loop, keepalive_timeout=IDLE_SECONDS, **self._options)

    def enter(self, address: str) -> bool:
        """Count a connection, and return whether it may stay. Each call needs a ``leave``."""
        connections.inc()
        self._of_address[address] += 1
        if self._of_address[address] <= self._most or self._is_proxy(address):
            return True
        if self._of_address[address] == self._most + 1:
            logger.warning("%s holds %s connections: more are refused", address, self._most)
        return False

    def leave(self, address: str) -> None:
        """Count a connection of the address as closed."""
        connections.dec()
        self._of_address[address] -= 1
        if self._of_address[address] <= 0:
            del self._of_address[address]

    def caller(self, address: str) -> str:
        """Return a new name for the client of a connection from this address; empty for a configured proxy."""
        return "" if self._is_proxy(address) else str(next(self._numbers))

    def _is_proxy(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self._proxies)


class Source(Protocol):
    """What a client is fed by."""

    def pause_reading(self) -> None:
        """Stop for now."""

    def resume_reading(self) -> None:
        """Go on."""


class LimitedHandler(web.RequestHandler):
    """One connection. ``begin`` must be called when its first request has arrived. ``caller``: a name for the one
    client that sends its requests; empty for a configured proxy, which sends those of many.
    """

    def __init__(self, server: LimitedServer, **options: Any) -> None:
        super().__init__(server, **options)
        self._server = server
        self.caller = ""
        self._address: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._source: Source | None = None
        self._room: asyncio.Future[None] | None = None

    @contextmanager
    def fed_by(self, source: Source) -> Iterator[None]:
        """Let ``source`` wait while this client takes nothing, for the length of the context."""
        self._source = source
        if self.writing_paused:
            source.pause_reading()
        try:
            yield
        finally:
            self._source = None

    async def drained(self) -> None:
        """Wait until the client has taken nearly all of what was written."""
        if self.writing_paused:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def pause_writing(self) -> None:
        """Let the source wait."""
        super().pause_writing()
        if self._source is not None:
            self._source.pause_reading()

    def resume_writing(self) -> None:
        """Let the source go on."""
        super().resume_writing()
        if self._source is not None:
            self._source.resume_reading()
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timeout for the first headers, or close a connection above the address's limit."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if isinstance(peer, tuple) else ""
        self.caller = self._server.caller(self._address)
        if self._server.enter(self._address):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(HEAD_SECONDS, self.force_close_now)
        else:
            self.force_close_now()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count the connection as closed. May be called twice: by the transport and by the tunnel that took it over."""
        self.begin()
        if self._address is not None:
            self._server.leave(self._address)
            self._address = None
        super().connection_lost(exc)

    def begin(self) -> None:
        """Cancel the timeout for the first headers."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def force_close_now(self) -> None:
        """Close the connection at once."""
        if self.transport is not None:  # no asyncio.Transport on uvloop, so its class says nothing
            self.transport.abort()
