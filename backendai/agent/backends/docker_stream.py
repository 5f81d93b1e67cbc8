"""Byte streams of the engine, driven from asyncio: its attach connections and its logs.

Spoken by hand because both are plain HTTP for one request and raw bytes from then on; asyncio's readers stop reading
from the socket while their buffer is full, so a slow client slows the container down and nothing piles up here.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

from backendai.agent.backends.base import BackendError

_OPEN_SECONDS = 30.0
_FRAME = struct.Struct(">BxxxL")
_PIECE = 64 * 1024


class Stream:
    """An open connection whose HTTP head has been read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def read(self) -> bytes:
        """Return the next bytes; empty at the end, also when the engine breaks off."""
        try:
            return await self.reader.read(_PIECE)
        except OSError:
            return b""

    async def frames(self) -> AsyncIterator[bytes]:
        """Yield the payload of the engine's frames (stdout and stderr share one connection) until the end."""
        try:
            while True:
                _, length = _FRAME.unpack(await self.reader.readexactly(_FRAME.size))
                while length:
                    piece = await self.reader.readexactly(min(length, _PIECE))
                    length -= len(piece)
                    yield piece
        except (asyncio.IncompleteReadError, OSError):
            return

    async def close(self) -> None:
        """Hang up at once; may be called twice."""
        self.writer.transport.abort()


async def open_stream(engine_url: str, method: str, path: str, body: dict[str, Any] | None = None) -> Stream:
    """Return the raw stream that follows the engine's answer. A refusal is a BackendError with the engine's words."""
    try:
        async with asyncio.timeout(_OPEN_SECONDS):
            reader, writer = await _connect(engine_url)
            writer.write(_request(method, path, body))
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head.split(b" ", 2)[1])
            if status < 300:
                return Stream(reader, writer)
            answer = await reader.read(_PIECE)
            writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        raise BackendError(f"The container engine does not answer: {error}", code="engine-unreachable") from error
    raise BackendError(f"The container engine refused: {_words(answer)}", status=status)


async def _connect(engine_url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = urlsplit(engine_url)
    if address.scheme == "unix":
        return await asyncio.open_unix_connection(address.path)
    return await asyncio.open_connection(address.hostname, address.port or 2375)


def _request(method: str, path: str, body: dict[str, Any] | None) -> bytes:
    """HTTP/1.0 for reading, so that the answer comes without chunks; an upgrade needs 1.1."""
    if body is None:
        return f"{method} {path} HTTP/1.0\r\nHost: engine\r\n\r\n".encode()
    payload = json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
    )
    return head.encode() + payload


def _words(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["message"])
    except (ValueError, KeyError, TypeError):
        return answer.decode(errors="replace").strip()
