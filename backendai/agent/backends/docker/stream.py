"""Byte streams of the engine for asyncio: attach connections and logs; and the messages about pulls and pushes.

Implemented here, as both are plain HTTP for one request and raw bytes afterwards. Reading pauses while the buffer is
full, so that a slow client slows the container down.
"""

from __future__ import annotations

import asyncio
import json
import struct
import time
from collections.abc import AsyncIterator, Coroutine, Generator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from backendai.agent.backends.base import BackendError

_OPEN_SECONDS = 30.0
_FRAME = struct.Struct(">BxxxL")
_PIECE = 64 * 1024
_MOST_WAITING = 2 * _PIECE
_LARGEST_HEAD = 64 * 1024
_LOOK_SECONDS = 0.5
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
T = TypeVar("T")


class EngineRefused(BackendError):
    """The engine's refusal. ``words``: its own message."""

    def __init__(self, words: str, status: int) -> None:
        super().__init__("The container engine refused: {words}", words=words, status=status)
        self.words = words


class EngineStream(asyncio.Protocol):
    """An open connection to the engine, with one reading and one writing task. Uses a single future between socket and
    reader, as asyncio's streams take a tenth of a key's echo time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting = bytearray()
        self._more: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._is_paused = self._has_ended = False

    async def read(self) -> bytes:
        """Return the next bytes; empty at the end or after a broken connection."""
        while not self._waiting and not self._has_ended:
            await self._come()
        return self._cut(_PIECE)

    async def read_head(self) -> bytes:
        """Return the head of the engine's answer. Raises EOFError if the connection breaks."""
        while (end := self._waiting.find(b"\r\n\r\n")) < 0:
            if self._has_ended or len(self._waiting) > _LARGEST_HEAD:
                raise EOFError("no whole answer")
            await self._come()
        return self._cut(end + 4)

    async def frames(self, *, whole: int = 0) -> AsyncIterator[bytes]:
        """Yield the payload of the engine's frames (stdout and stderr share a connection) until the end. ``whole``: the
        size of a frame that may end within a line; other frames get a newline if they have none."""
        try:
            while True:
                _, length = _FRAME.unpack(await self._exactly(_FRAME.size))
                left, piece = length, b""
                while left:
                    piece = await self._exactly(min(left, _PIECE))
                    left -= len(piece)
                    yield piece
                if whole and length != whole and not piece.endswith(b"\n"):
                    yield b"\n"
        except EOFError:
            return

    async def write(self, data: bytes) -> None:
        """Send bytes; blocks while the engine is slow, does nothing after the end."""
        if self._has_ended:
            return
        self._transport.write(data)
        if self._room is not None:
            await asyncio.shield(self._room)

    async def close(self) -> None:
        """Close the connection at once. A second call does nothing."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Save the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Buffer bytes for the reader."""
        self._waiting += data
        if len(self._waiting) > _MOST_WAITING and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        """Mark the end, which follows the buffered bytes."""
        self._has_ended = True
        self._wake()
        self.resume_writing()

    def pause_writing(self) -> None:
        """Block writers."""
        self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        """Unblock writers."""
        if self._room is not None:
            self._room.set_result(None)
        self._room = None

    async def _exactly(self, size: int) -> bytes:
        while len(self._waiting) < size:
            if self._has_ended:
                raise EOFError("cut off")
            await self._come()
        return self._cut(size)

    async def _come(self) -> None:
        self._more = self._loop.create_future()
        await self._more

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    def _cut(self, size: int) -> bytes:
        data = bytes(memoryview(self._waiting)[:size])
        del self._waiting[:size]
        if self._is_paused and len(self._waiting) <= _PIECE:
            self._is_paused = False
            self._transport.resume_reading()
        return data


async def open_stream(
    engine_url: str,
    method: str,
    path: str,
    body: dict[str, Any] | None = None,
    *,
    headers: Mapping[str, str] = _NO_HEADERS,
    seconds: float = _OPEN_SECONDS,
) -> EngineStream:
    """Return the raw stream after the engine's answer, which takes ``seconds`` at most. Raises BackendError, for a
    refusal EngineRefused."""
    try:
        async with asyncio.timeout(seconds):
            stream = await _connect(engine_url)
            try:
                await stream.write(_request(method, path, body, headers))
                head = await stream.read_head()
                status = int(head.split(b" ", 2)[1])
                if status < 300:
                    return stream
                answer = await stream.read()
            except BaseException:
                await stream.close()
                raise
            await stream.close()
    except (OSError, TimeoutError, EOFError) as error:
        raise BackendError(
            "The container engine does not answer: {error}", error=str(error), code="engine-unreachable"
        ) from error
    raise EngineRefused(_words(answer), status)


def engine_messages(
    engine_url: str, path: str, headers: Mapping[str, str], *, silence: float
) -> Generator[dict[str, Any]]:
    """Yield the engine's messages about a pull or a push, and an empty one every half second in between, at which the
    caller can give up. Close the iterator then: that closes the connection, and the engine gives up too.

    The end of the messages may be a broken connection. Raises BackendError, and TimeoutError after ``silence`` seconds.
    """
    with asyncio.Runner() as runner:
        opening = open_stream(engine_url, "POST", path, headers=headers, seconds=silence)
        stream = yield from _awaited(runner, opening, silence)
        rest = b""
        try:
            while piece := (yield from _awaited(runner, stream.read(), silence)):
                *lines, rest = (rest + piece).split(b"\n")
                yield from (json.loads(line) for line in lines if line.strip())
        finally:
            runner.run(stream.close())


def _awaited(
    runner: asyncio.Runner, work: Coroutine[Any, Any, T], seconds: float
) -> Generator[dict[str, Any], None, T]:
    task, until = runner.get_loop().create_task(work), time.monotonic() + seconds
    while not runner.run(_is_done(task)):
        if time.monotonic() > until:
            raise TimeoutError
        yield {}
    return task.result()


async def _is_done(task: asyncio.Task[Any]) -> bool:
    return bool((await asyncio.wait({task}, timeout=_LOOK_SECONDS))[0])


async def _connect(engine_url: str) -> EngineStream:
    address, loop = urlsplit(engine_url), asyncio.get_running_loop()
    if address.scheme == "unix":
        return (await loop.create_unix_connection(EngineStream, address.path))[1]
    return (await loop.create_connection(EngineStream, address.hostname or "", address.port or 2375))[1]


def _request(method: str, path: str, body: dict[str, Any] | None, headers: Mapping[str, str]) -> bytes:
    """Return the request: HTTP/1.0 for reading, so that the answer is not chunked, HTTP/1.1 for an upgrade."""
    if body is None:
        more = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
        return f"{method} {path} HTTP/1.0\r\nHost: engine\r\n{more}\r\n".encode()
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
