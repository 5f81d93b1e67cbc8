"""Joins two connections: bytes of each are forwarded to the other unchanged.

A websocket between browser and app, and the tunnel between app proxy and kernel, both begin as an HTTP request that an
aiohttp connection answered with 101. From then on this module uses the bare connections. Frames are not parsed and
nothing accumulates: while one side cannot write, the other is not read.
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from collections.abc import Callable
from typing import Any, cast

_CHECK_SECONDS = 1.0
# How long unsent bytes may take after a reset of the other end, and after its orderly end.
_FLUSH_SECONDS, _FINISH_SECONDS = 5.0, 60.0
_RESET = struct.pack("ii", 1, 0)  # no lingering: closing discards what is not sent
_BUFFER_LIMIT = 64 * 1024  # bytes that may wait to be written on one side before reading from the other side pauses


class Side(asyncio.Protocol):
    """One of the two connections of a splice. Bytes are buffered until it is joined. ``former``: the connection's
    previous protocol, which is informed when the connection is lost."""

    def __init__(self, former: asyncio.BaseProtocol | None = None) -> None:
        self._former = former
        self._peer: Side | None = None
        self._transport: asyncio.Transport | None = None
        self._early = bytearray()
        self._has_ended = self._is_cut = self._has_finished = False
        self._looking: asyncio.TimerHandle | None = None
        self.on_bytes: Callable[[bytes], None] | None = None  # called with all bytes that this end receives
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the connection, and pause reading until it is joined."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_BUFFER_LIMIT)
        self.pause_reading()

    def join(self, peer: Side) -> None:
        """Forward bytes to the peer from now on, beginning with the buffered ones."""
        self._peer = peer
        if self._early:
            peer.write(bytes(self._early))
            self._early.clear()
        self.resume_reading()

    def write(self, data: bytes) -> None:
        """Write to the connection unless it has ended."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        """Pass the bytes to ``on_bytes``, if set, and forward them; before ``join``, buffer them for it."""
        if self.on_bytes is not None:
            self.on_bytes(data)
        if self._peer is None:
            self._early += data
        else:
            self._peer.write(data)

    def eof_received(self) -> bool:
        """Forward the end of the stream to the peer. Returns whether this connection remains open for bytes from the
        peer."""
        self._has_ended = True
        if self._peer is None or self._peer._has_ended:
            return False
        return self._peer.end_writing()

    def end_writing(self) -> bool:
        """Send the end of the stream. Returns whether the other direction remains open."""
        self._has_finished = True
        if self._transport is None or not self._transport.can_write_eof():
            self.close()
            return False
        self._transport.write_eof()
        return True

    def pause_writing(self) -> None:
        """Pause reading from the peer, as the write buffer is full."""
        if self._peer is not None:
            self._peer.pause_reading()

    def resume_writing(self) -> None:
        """Resume reading from the peer, as the write buffer has room again."""
        if self._peer is not None:
            self._peer.resume_reading()

    def pause_reading(self) -> None:
        """Pause reading from the connection."""
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()
            if self._peer is not None and self._looking is None:
                self._check_later()

    def _check_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(_CHECK_SECONDS, self._check_reset)

    def _check_reset(self) -> None:
        """Cut both ends if this end was reset or has left. The event loop notices that only on connections that it
        reads. Where both directions have ended, bytes may wait to be read: that looks like one that has left.
        """
        self._looking = None
        if self._transport is None or self._transport.is_closing() or self._transport.is_reading():
            return
        found = select.poll()
        # With an empty mask poll reports errors only.
        found.register(self._transport.get_extra_info("socket").fileno(), 0)
        if any(not self._has_finished or event & select.POLLERR for _, event in found.poll(0)):
            self._is_cut = True
            self._transport.abort()
        else:
            self._check_later()

    def resume_reading(self) -> None:
        """Resume reading from the connection."""
        if self._transport is not None and not self._transport.is_closing() and not self._transport.is_reading():
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """Close the peer and inform the connection's former protocol."""
        if self._peer is not None:
            self._peer.reset() if self._is_cut else self._peer.close()
            self._peer.cut_later(_FINISH_SECONDS if error is None else _FLUSH_SECONDS)
        self._inform_former(error)
        if not self.lost.done():
            self.lost.set_result(None)

    def _inform_former(self, error: Exception | None) -> None:
        """Inform the previous protocol that the connection is lost.

        After an orderly end this waits for the end of the peer's connection. aiohttp then ends its handler, which cuts
        both ends, so the peer's remaining bytes must be sent before.
        """
        former, peer = self._former, self._peer
        if former is None:
            return
        if error is None and peer is not None and not peer.lost.done():
            peer.lost.add_done_callback(lambda _: former.connection_lost(None))
        else:
            former.connection_lost(error)

    def close(self) -> None:
        """Close after all bytes are sent; may be called twice."""
        if self._transport is not None:
            self._transport.close()

    def cut_later(self, seconds: float) -> None:
        """If bytes are waiting to be sent, cut the connection after ``seconds``."""
        if self._transport is not None and self._transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(seconds, self._transport.abort)

    @property
    def has_ended(self) -> bool:
        """Whether the end of what this side sends has arrived."""
        return self._has_ended

    def reset(self) -> None:
        """Close at once, so that also a program that does not read notices the end."""
        if self._transport is not None and not self.lost.done():
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()


class _Leftover:
    """Collects the bytes that aiohttp had read beyond the response head."""

    def __init__(self) -> None:
        self.data = bytearray()

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.data += data
        return False, b""

    def feed_eof(self) -> None: ...

    def is_eof(self) -> bool:
        return True

    def set_exception(self, *_: Any) -> None: ...


def take_over(protocol: Any) -> Side:
    """Return the bare connection of an aiohttp protocol that has answered 101. Raises ConnectionResetError if the
    connection is closed."""
    rest = _Leftover()
    protocol.set_parser(rest)
    transport = protocol.transport
    if transport is None:
        raise ConnectionResetError("the connection is gone")
    side = Side(protocol)
    side.data_received(bytes(rest.data))
    transport.set_protocol(side)
    side.connection_made(transport)
    return side


def take_over_streams(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Side:
    """Return a stream's bare connection, with the bytes that were already read."""
    side = Side()
    transport = cast(asyncio.Transport, writer.transport)
    read = bytes(reader._buffer)  # type: ignore[attr-defined]
    if read:
        side.data_received(read)
    transport.set_protocol(side)
    side.connection_made(transport)
    return side


async def splice(one: Side, other: Side) -> None:
    """Forward bytes in both directions until both connections have closed. A cancellation closes both."""
    one.join(other)
    other.join(one)
    try:
        await asyncio.gather(asyncio.shield(one.lost), asyncio.shield(other.lost))
    finally:
        one.abort()
        other.abort()
