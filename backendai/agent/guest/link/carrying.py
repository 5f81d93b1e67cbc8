"""Multiplexes connections over one byte stream; both ends use this module.

A frame consists of a connection's number, a kind, the length of the content, and the content. Each end may send a
window of bytes per connection before the other end has forwarded them, so that a slow connection delays only itself.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

OPEN, DATA, END, CLOSE, GRANT, START = range(6)
WINDOW = 256 * 1024
MOST = 256  # connections at once
_MOST_TASKS = 4 * MOST
_HEAD = struct.Struct(">IBI")
_PIECE = 24 * 1024  # fits with its head into one message of a pod's stream
_NUMBER = struct.Struct(">I")
if TYPE_CHECKING:  # older Pythons in images do not support these types at run time
    Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Carrier:
    """One end of the stream. Belongs to one event loop.

    ``send`` sends whole frames. ``connect`` opens a connection that the other end requests (None: only this end opens
    them). ``on_start`` is called when the other end requests the start of a program.
    """

    def __init__(
        self,
        send: Callable[[bytes], Awaitable[None]],
        *,
        connect: Callable[[], Awaitable[Connection]] | None = None,
        on_start: Callable[[], None] = lambda: None,
    ) -> None:
        self._send, self._connect, self._on_start = send, connect, on_start
        self._carried: dict[int, _Carried] = {}
        self._tasks: set[asyncio.Future[None]] = set()
        self._waiting, self._last = bytearray(), 0

    @property
    def is_idle(self) -> bool:
        """Whether no connection is open."""
        return not self._carried

    async def start_program(self) -> None:
        """Request that the other end starts its program."""
        await self._send(_frame(0, START))

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward a connection of this end until both sides have ended."""
        if len(self._carried) >= MOST:
            writer.close()
            return
        self._last += 1
        number, carried = self._last, _Carried()
        self._carried[number] = carried
        await self._send(_frame(number, OPEN))
        await self._run(number, carried, reader, writer)

    def take(self, data: bytes) -> None:
        """Process received bytes. Raises ValueError for an invalid frame."""
        self._waiting += data
        while len(self._waiting) >= _HEAD.size:
            number, kind, size = _HEAD.unpack_from(self._waiting)
            if size > WINDOW or kind > START or (kind == GRANT and size != _NUMBER.size):
                raise ValueError("this is no frame")
            if len(self._waiting) < _HEAD.size + size:
                return
            content = bytes(self._waiting[_HEAD.size : _HEAD.size + size])
            del self._waiting[: _HEAD.size + size]
            self._heed(number, kind, content)

    def close(self) -> None:
        """Close every connection."""
        for task in list(self._tasks):
            task.cancel()
        self._carried.clear()

    def _heed(self, number: int, kind: int, content: bytes) -> None:
        if kind == START:
            self._on_start()
        elif kind == OPEN:
            if self._connect is not None and number not in self._carried and len(self._carried) < MOST:
                self._carried[number] = _Carried()  # buffers data until the connection is open
                self._spawn(self._answer(number, self._carried[number], self._connect))
            elif len(self._tasks) < _MOST_TASKS:
                self._spawn(self._send(_frame(number, CLOSE)))
        elif (carried := self._carried.get(number)) is None:
            return  # the connection has just ended
        elif kind == DATA:
            carried.owed += len(content)
            if not content or carried.has_ended or carried.owed > WINDOW:  # else the other end could fill the memory
                raise ValueError("more came than was granted, or nothing")
            carried.came.put_nowait(content)
        elif kind == GRANT:
            carried.may_send += min(_NUMBER.unpack(content)[0], WINDOW)
            carried.granted.set()
        elif not carried.is_closed and not (kind == END and carried.has_ended):
            carried.came.put_nowait(b"" if kind == END else None)
            carried.has_ended, carried.is_closed = True, kind != END

    async def _answer(self, number: int, carried: _Carried, connect: Callable[[], Awaitable[Connection]]) -> None:
        try:
            reader, writer = await connect()
        except OSError:
            self._carried.pop(number, None)
            await self._send(_frame(number, CLOSE))
            return
        await self._run(number, carried, reader, writer)

    async def _run(
        self, number: int, carried: _Carried, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        out = asyncio.ensure_future(self._send_all(number, carried, reader))
        self._tasks.add(out)
        try:
            await self._pass_on(number, carried, writer)
            await out
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            out.cancel()
            self._tasks.discard(out)
            writer.close()
            if self._carried.pop(number, None) is not None:
                await self._send(_frame(number, CLOSE))

    async def _send_all(self, number: int, carried: _Carried, reader: asyncio.StreamReader) -> None:
        while True:
            while carried.may_send <= 0:
                carried.granted.clear()
                await carried.granted.wait()
            data = await reader.read(min(_PIECE, carried.may_send))
            if not data:
                await self._send(_frame(number, END))
                return
            carried.may_send -= len(data)
            await self._send(_frame(number, DATA, data))

    async def _pass_on(self, number: int, carried: _Carried, writer: asyncio.StreamWriter) -> None:
        while data := await carried.came.get():
            writer.write(data)
            await writer.drain()
            carried.owed -= len(data)
            await self._send(_frame(number, GRANT, _NUMBER.pack(len(data))))
        if data is None:
            self._carried.pop(number, None)
            raise ConnectionResetError
        if writer.can_write_eof():
            writer.write_eof()

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Carried:
    """A connection. ``came``: received data that is not forwarded yet; empty bytes: the end; None: closed."""

    def __init__(self) -> None:
        self.came: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.owed, self.may_send, self.granted = 0, WINDOW, asyncio.Event()
        self.has_ended = self.is_closed = False  # the other end has closed its side


def _frame(number: int, kind: int, content: bytes = b"") -> bytes:
    return _HEAD.pack(number, kind, len(content)) + content
