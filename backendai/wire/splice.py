"""Two connections joined into one: whatever comes from one goes to the other, unread.

A websocket between browser and app, and the tunnel between the app proxy and a kernel's port, both begin as an HTTP
request that an aiohttp connection has answered with 101. From then on this takes the bare connections over: no frame is
parsed, and nothing piles up, because a side that is full stops the reading of the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

_KEPT_FREE = 64 * 1024  # what waits to be written on one side at most, in bytes, before the other is not read


class Side(asyncio.Protocol):
    """One end. Bytes are held back until it is joined to another; ``former`` hears when the connection is lost."""

    def __init__(self, former: asyncio.BaseProtocol | None = None) -> None:
        self._former = former
        self._peer: Side | None = None
        self._transport: asyncio.Transport | None = None
        self._early = bytearray()
        self._has_ended = False
        self.heard: Callable[[bytes], None] | None = None  # told of what comes from this end
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection, and read nothing from it until it is joined."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_KEPT_FREE)
        self.pause_reading()

    def join(self, peer: Side) -> None:
        """Let bytes flow to the peer from now on."""
        self._peer = peer
        if self._early:
            peer.write(bytes(self._early))
            self._early.clear()
        self.resume_reading()

    def write(self, data: bytes) -> None:
        """Send; after the end nothing is sent."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        """Pass it on, or keep what came with the answer that made this a bare connection."""
        if self.heard is not None:
            self.heard(data)
        if self._peer is None:
            self._early += data
        else:
            self._peer.write(data)

    def eof_received(self) -> bool:
        """The other side says no more: say so to the peer, which may still have something to say."""
        self._has_ended = True
        if self._peer is None or self._peer._has_ended:
            return False
        return self._peer.end_writing()

    def end_writing(self) -> bool:
        """Say that no more comes; returns whether the connection goes on in the other direction."""
        if self._transport is None or not self._transport.can_write_eof():
            self.close()
            return False
        self._transport.write_eof()
        return True

    def pause_writing(self) -> None:
        """Full: read no more from the peer."""
        if self._peer is not None:
            self._peer.pause_reading()

    def resume_writing(self) -> None:
        """Room again."""
        if self._peer is not None:
            self._peer.resume_reading()

    def pause_reading(self) -> None:
        """Take nothing from the connection for now."""
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take from the connection again."""
        if self._transport is not None and not self._transport.is_closing() and not self._transport.is_reading():
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """Close the peer too, and let whoever had the connection before clear up."""
        if self._peer is not None:
            self._peer.close()
        if self._former is not None:
            self._former.connection_lost(error)
        if not self.lost.done():
            self.lost.set_result(None)

    def close(self) -> None:
        """Close once everything is sent; may be called twice."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()


class _Rest:
    """Gathers the bytes that aiohttp had already read beyond the head."""

    def __init__(self) -> None:
        self.data = bytearray()

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.data += data
        return False, b""

    def feed_eof(self) -> None: ...

    def is_eof(self) -> bool:
        return True

    def set_exception(self, *_: Any) -> None: ...


def take_over(protocol: Any, *, is_client: bool) -> Side:
    """Return the connection of an aiohttp protocol that has said 101, as a bare side; the protocol reads no more."""
    rest = _Rest()
    protocol.set_parser(rest, *([rest] if is_client else []))
    transport = protocol.transport
    if transport is None:
        raise ConnectionResetError("the connection is gone")
    side = Side(protocol)
    side.data_received(bytes(rest.data))
    transport.set_protocol(side)
    side.connection_made(transport)
    return side


def take_over_streams(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Side:
    """Return a connection as a bare side, with what was read of it already; the streams read no more."""
    side = Side()
    transport = cast(asyncio.Transport, writer.transport)
    read = bytes(reader._buffer)  # type: ignore[attr-defined]
    if read:
        side.data_received(read)
    transport.set_protocol(side)
    side.connection_made(transport)
    return side


async def splice(one: Side, other: Side) -> None:
    """Join both and return when both connections are gone; cancelled, it cuts both."""
    one.join(other)
    other.join(one)
    try:
        await asyncio.gather(asyncio.shield(one.lost), asyncio.shield(other.lost))
    finally:
        one.abort()
        other.abort()
