"""Streams of the API for asyncio: commands in containers, growing logs, and connections to ports.

A command's stream is a websocket whose messages begin with a channel number. Data is read only on demand, so that a
slow client slows the program down.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import aiohttp

from backendai.agent.backends.base import BackendError, KernelGone
from backendai.agent.backends.kubernetes.api.client import UNREACHABLE, Api, silent
from backendai.agent.backends.kubernetes.api.names import MAIN

_OPEN_SECONDS = 20.0
_LARGEST_MESSAGE = 4 * 2**20
_LARGEST_ANSWER = 4 * 2**20
_PIECE = 32 * 1024
_PING_SECONDS = 30.0  # proxies drop connections that are idle for minutes
_IN, _OUT, _ERR, _STATUS, _RESIZE = range(5)
_GONE = "This kernel does not run any more."


class PodCommand:
    """A command that runs in a container. It outlives its stream: the caller ends it before disconnecting."""

    def __init__(self, session: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._session, self._socket = session, socket
        self.exit_code: int | None = None  # set at the output's end; None: the stream broke

    async def read(self) -> bytes:
        """Return the next output (stdout or stderr); empty at the end."""
        while True:
            message = await self._socket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                if message.type is aiohttp.WSMsgType.TEXT:
                    continue
                return b""
            data: bytes = message.data
            if not data:
                continue
            if data[0] in (_OUT, _ERR) and len(data) > 1:
                return data[1:]
            if data[0] == _STATUS:
                self.exit_code = _exit_code(data[1:])

    async def write(self, data: bytes) -> None:
        """Send input; does nothing after the end."""
        with contextlib.suppress(ConnectionError, RuntimeError):
            for start in range(0, len(data), _PIECE):
                await self._socket.send_bytes(bytes([_IN]) + data[start : start + _PIECE])

    async def resize(self, rows: int, cols: int) -> None:
        """Set the terminal's size."""
        with contextlib.suppress(ConnectionError, RuntimeError):
            said = json.dumps({"Width": cols, "Height": rows}).encode()
            await self._socket.send_bytes(bytes([_RESIZE]) + said)

    async def close(self) -> None:
        """Disconnect. A second call does nothing."""
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._socket.close(), 2)
        await self._session.close()


async def run_command(
    api: Api, pod: str, command: Sequence[str], *, stdin: bool = False, tty: bool = False
) -> PodCommand:
    """Start a command in a pod's main container and return it. Raises KernelGone, BackendError."""
    query = [("container", MAIN), ("stdout", "1"), *(("command", word) for word in command)]
    query += [("stdin", "1")] if stdin else []
    query += [("tty", "1")] if tty else [("stderr", "1")]
    path = api.path("pods", pod, "exec")
    return PodCommand(*await _connect(api, api.address(path, query), "v4.channel.k8s.io"))


def output_of(
    api: Api, pod: str, command: Sequence[str], *, seconds: float = 20.0, limit: int = _LARGEST_ANSWER
) -> tuple[bytes, int | None]:
    """Run a command in a pod; return its output, up to ``limit`` bytes, and exit code (None: unknown). Blocks. Raises
    KernelGone, and BackendError after ``seconds``."""
    return asyncio.run(_output(api, pod, command, seconds, limit))


async def _output(api: Api, pod: str, command: Sequence[str], seconds: float, limit: int) -> tuple[bytes, int | None]:
    try:
        async with asyncio.timeout(seconds):
            running = await run_command(api, pod, command)
            try:
                seen = bytearray()
                while len(seen) < limit and (piece := await running.read()):
                    seen += piece
            finally:
                await running.close()
    except TimeoutError as error:
        raise BackendError(
            "A command in the pod took longer than {seconds} s.", seconds=f"{seconds:g}", code=UNREACHABLE
        ) from error
    return bytes(seen[:limit]), running.exit_code


async def log_of(api: Api, pod: str, query: dict[str, str]) -> AsyncGenerator[bytes]:
    """Yield a pod's log as it grows; nothing if there is none. Raises BackendError."""
    query = {"container": MAIN, **query}
    address = api.address(api.path("pods", pod, "log"), list(query.items()))
    session = _session(api)
    try:
        async with session.get(address, headers=await _headers(api), ssl=_tls(api)) as answer:
            if answer.status in (400, 404):
                return
            if answer.status >= 300:
                words = (await answer.text())[:300]
                text = "The Kubernetes API refused a log ({status}): {words}"
                raise BackendError(text, status=answer.status, words=words)
            async for piece in answer.content.iter_any():
                yield piece
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise silent(error) from error
    finally:
        await session.close()


async def forward(api: Api, pod: str, port: int) -> tuple[aiohttp.ClientSession, aiohttp.ClientWebSocketResponse]:
    """Return a websocket with one connection to a pod's port. Raises KernelGone, BackendError."""
    address = api.address(api.path("pods", pod, "portforward"), [("ports", str(port))])
    return await _connect(api, address, "v4.channel.k8s.io")


async def _connect(
    api: Api, address: str, protocol: str
) -> tuple[aiohttp.ClientSession, aiohttp.ClientWebSocketResponse]:
    session = _session(api)
    try:
        async with asyncio.timeout(_OPEN_SECONDS):
            socket = await session.ws_connect(
                address,
                protocols=(protocol,),
                headers=await _headers(api),
                ssl=_tls(api),
                max_msg_size=_LARGEST_MESSAGE,
                heartbeat=_PING_SECONDS,
            )
    except aiohttp.WSServerHandshakeError as error:
        await session.close()
        if error.status in (404, 400, 409, 500):  # 500: the kubelet does not know the container
            raise KernelGone(_GONE) from error
        raise BackendError(
            "The Kubernetes API refused a stream ({status}): {words}", status=error.status, words=error.message
        ) from error
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        await session.close()
        raise silent(error) from error
    except BaseException:
        await session.close()
        raise
    return session, socket


def _session(api: Api) -> aiohttp.ClientSession:
    api.count()
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, connect=_OPEN_SECONDS))


async def _headers(api: Api) -> dict[str, str]:
    return await asyncio.to_thread(api.access.headers)


def _tls(api: Api) -> Any:
    return True if api.access.context is None else api.access.context


def _exit_code(data: bytes) -> int | None:
    try:
        said = json.loads(data)
        if said.get("status") == "Success":
            return 0
        causes = (said.get("details") or {}).get("causes") or []
        return next((int(cause["message"]) for cause in causes if cause.get("reason") == "ExitCode"), 1)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
