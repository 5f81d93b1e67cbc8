"""Requests to servers in kernels, over tunnels that are kept for the next request of the same visitor.

A kept connection is used again within ``KEPT_SECONDS``, and only if its end has not arrived. So a server that closes
idle connections rarely gets a request meanwhile. What remains: its end is still on the way when the request leaves.
Then nobody can tell that from a server that broke off, and only requests that may be executed twice are sent again.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from backendai.base.core.messages import Message
from backendai.base.wire.splice import Side
from backendai.gates.gateways.answers import Answer
from backendai.gates.gateways.targets import Target
from backendai.gates.gateways.tunnel import SILENCE_SECONDS, UNREACHABLE, NoTunnel, open_tunnel

KEPT_SECONDS = 1.5  # common servers close an idle connection after 2 s (gunicorn) or 5 s (uvicorn, Node)
_EARLY_BYTES = 64 * 1024  # of a body that nobody takes yet
_Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A request as it is sent. ``pieces`` begins its body anew, which is sent in chunks if its length is not said.
    ``silence``: seconds without a byte after which the server counts as broken.
    """

    method: str
    head: bytes
    pieces: Callable[[], AsyncIterator[bytes]] | None = None
    is_chunked: bool = False
    silence: float = SILENCE_SECONDS


class Exchange(asyncio.Protocol):
    """A connection with the request and answer on it. ``close`` must be called after each answer."""

    def __init__(self, tunnels: Tunnels, key: _Key | None, transport: asyncio.Transport) -> None:
        self.answer = Answer("HEAD")
        self.is_kept = False
        self.kept_at = 0.0
        self._tunnels, self._key, self._transport = tunnels, key, transport
        self._loop = asyncio.get_running_loop()
        self._news = select.poll()
        self._news.register(transport.get_extra_info("socket").fileno(), select.POLLIN | select.POLLRDHUP)
        self._sending: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard_at, self._is_paused = 0.0, False
        self._room: asyncio.Future[None] | None = None
        transport.set_protocol(self)
        transport.resume_reading()

    def ask(self, question: Question) -> None:
        """Send the request, and begin to read its answer."""
        self.is_kept, self.answer = False, Answer(question.method)
        self._transport.write(question.head)
        self._heard_at = self._loop.time()
        self._timer = self._loop.call_later(question.silence, self._check_silence, question.silence)
        if question.pieces is not None:
            self._sending = self._loop.create_task(self._send(question.pieces(), is_chunked=question.is_chunked))
        else:
            self._sending = None

    def flow_to(self, sink: Callable[[bytes], None]) -> None:
        """Give the pieces of the body to ``sink`` from now on; what has come of it is in ``answer.early``."""
        self.answer.sink = sink
        self.resume_reading()

    def become_side(self) -> Side:
        """Return the bare connection of an answer that has switched protocols."""
        if self._timer is not None:
            self._timer.cancel()
        side = Side()
        side.data_received(self.answer.beyond)
        self._transport.set_protocol(side)
        side.connection_made(self._transport)
        return side

    def close(self) -> None:
        """Keep the connection for the visitor's next request if nothing of this one is left on it, else end it."""
        if self._timer is not None:
            self._timer.cancel()
        is_sent = self._sending is None or (self._sending.done() and not self._sending.cancelled())
        if self._sending is not None:
            self._sending.cancel()
        if self.answer.is_whole and is_sent and self._key is not None and self.answer.is_reusable and self._is_open():
            self.resume_reading()
            self._tunnels.keep(self._key, self)
        else:
            self.abort()

    def abort(self) -> None:
        """End the connection at once."""
        self._transport.abort()

    def is_fresh(self) -> bool:
        """Return whether a kept connection can be used again. The event loop may not have read its end yet."""
        if not self._is_open() or self._loop.time() - self.kept_at > KEPT_SECONDS:
            return False
        return not self._news.poll(0)

    def data_received(self, data: bytes) -> None:
        """Parse the answer. Bytes that nobody asked for end the connection."""
        if self.is_kept:
            self.abort()
            return
        self._heard_at = self._loop.time()
        answer = self.answer
        answer.feed(data)
        if answer.status == 101 or (answer.sink is None and len(answer.early) > _EARLY_BYTES):
            self.pause_reading()

    def eof_received(self) -> None:
        """End the answer, and the connection."""
        self.answer.end(None)

    def connection_lost(self, error: Exception | None) -> None:
        """End the answer, and what waits to be sent."""
        self.answer.end(error and aiohttp.ClientOSError(*error.args))
        self.resume_writing()

    def pause_reading(self) -> None:
        """Let the server wait."""
        if not self._is_paused and self._is_open():
            self._is_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Let the server go on."""
        if self._is_paused and self._is_open():
            self._is_paused, self._heard_at = False, self._loop.time()
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Let the sender of the body wait."""
        self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        """Let the sender of the body go on."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    async def _send(self, pieces: AsyncIterator[bytes], *, is_chunked: bool) -> None:
        write = self._transport.write
        try:
            async for piece in pieces:
                if not self._is_open():
                    return
                write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
                self._heard_at = self._loop.time()
                if self._room is not None:
                    await self._room
            if is_chunked:
                write(b"0\r\n\r\n")
        except Exception as error:
            wrapped = error if isinstance(error, aiohttp.ClientError) else aiohttp.ClientConnectionError(str(error))
            self.answer.fail(wrapped)
            self.abort()  # half a body: the server must not take it for a whole one

    def _check_silence(self, seconds: float) -> None:
        left = self._heard_at + seconds - self._loop.time()
        if self._is_paused:  # its reader is slow
            left = seconds
        if left > 0:
            self._timer = self._loop.call_later(left, self._check_silence, seconds)
        else:
            self.answer.fail(aiohttp.ServerTimeoutError(Message("the server was silent for too long")))
            self.abort()

    def _is_open(self) -> bool:
        return not self._transport.is_closing()


class Tunnels:
    """Tunnels for requests. An agent that opens none within ``patience`` seconds counts as unreachable, if another one
    can be asked (None: within the time limit of a tunnel). Belongs to one event loop.
    """

    def __init__(self, *, patience: float | None = None) -> None:
        self._patience = patience
        self._kept: dict[_Key, list[Exchange]] = {}
        self._sweep: asyncio.TimerHandle | None = None

    async def ask(self, target: Target, question: Question, *, apart: bool, may_repeat: Callable[[], bool]) -> Exchange:
        """Send the request and return its exchange when the head of the answer has arrived. ``apart``: over a
        connection for this request alone. Raises NoTunnel, InvalidAnswer and other errors of aiohttp's client.
        """
        key = None if apart else (target.kernel_id, target.generation, target.service, target.port, target.visitor)
        exchange = self._take(key) if key is not None else None
        is_reused = exchange is not None
        while True:
            if exchange is None:
                exchange = await self._open(target, key)
            exchange.ask(question)
            try:
                await exchange.answer.arrived
                return exchange
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                exchange.close()
                if not is_reused or exchange.answer.has_begun or not may_repeat():
                    raise
                exchange, is_reused = None, False
            except BaseException:
                exchange.close()
                raise

    def keep(self, key: _Key, exchange: Exchange) -> None:
        """Keep the connection for the next request with this key."""
        loop = asyncio.get_running_loop()
        exchange.is_kept, exchange.kept_at = True, loop.time()
        self._kept.setdefault(key, []).append(exchange)
        if self._sweep is None:
            self._sweep = loop.call_later(KEPT_SECONDS, self._end_old)

    def close(self) -> None:
        """End the kept connections."""
        if self._sweep is not None:
            self._sweep.cancel()
        for exchange in [one for kept in self._kept.values() for one in kept]:
            exchange.abort()
        self._kept.clear()

    def _take(self, key: _Key) -> Exchange | None:
        kept = self._kept.get(key, [])
        while kept:
            exchange = kept.pop()
            if exchange.is_fresh():
                return exchange
            exchange.abort()
        self._kept.pop(key, None)
        return None

    def _end_old(self) -> None:
        loop = asyncio.get_running_loop()
        oldest = loop.time() - KEPT_SECONDS
        for exchange in [one for kept in self._kept.values() for one in kept if one.kept_at < oldest]:
            exchange.abort()
        fresh = {key: [one for one in kept if one.kept_at >= oldest] for key, kept in self._kept.items()}
        self._kept = {key: kept for key, kept in fresh.items() if kept}
        self._sweep = loop.call_later(KEPT_SECONDS, self._end_old) if self._kept else None

    async def _open(self, target: Target, key: _Key | None) -> Exchange:
        try:
            async with asyncio.timeout(self._patience):
                transport, _ = await open_tunnel(target)
        except TimeoutError as error:
            raise NoTunnel("node-unreachable", UNREACHABLE) from error
        return Exchange(self, key, transport)
