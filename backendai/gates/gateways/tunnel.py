"""Tunnels to the ports of kernels through their agent's gateway.

A tunnel belongs to one port of one generation of a kernel. It breaks when the kernel ends, so it cannot lead to another
kernel.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import aiohttp
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.gates.gateways.dialing import DIAL_SECONDS
from backendai.gates.gateways.targets import Target
from backendai.gates.gateways.tickets import ticket_for

SILENCE_SECONDS = 300.0
_LARGEST_HEAD = 16 * 1024
_LONGEST_SECONDS = 3 * DIAL_SECONDS
UNREACHABLE = Message("The agent of this session is not reachable.")


class NoTunnel(aiohttp.ClientConnectionError):
    """The agent's gateway does not open a tunnel; ``code`` is the cause."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


async def open_tunnel(target: Target) -> tuple[asyncio.Transport, bytes]:
    """Return a paused connection to the port, and the bytes received so far. Raises NoTunnel."""
    headers = ticket_for(
        target.kernel_id, target.generation, "app", timezone.now(), service=target.service, port=target.port
    )
    path = f"/kernels/{target.kernel_id}/app"
    return await open_upgraded(target.gateway_url, path, "tcp", headers, slowness=target.slowness)


async def open_upgraded(
    gateway_url: str, path: str, protocol: str, headers: Mapping[str, str], *, slowness: int = 1
) -> tuple[asyncio.Transport, bytes]:
    """Return a paused connection that the gateway has switched to a protocol, and the bytes received so far.

    ``slowness``: that of the agent, which may start the kernel's guest first. Raises NoTunnel.
    """
    loop = asyncio.get_running_loop()
    try:
        parts = urlsplit(gateway_url)
        is_secure = parts.scheme == "https"
        port = parts.port or (443 if is_secure else 80)
    except ValueError as error:
        raise NoTunnel("node-unreachable", Message("The address of this session's agent cannot be used.")) from error
    transport: asyncio.Transport | None = None
    try:
        async with asyncio.timeout(_LONGEST_SECONDS * slowness):
            transport, answer = await loop.create_connection(
                _Answer, parts.hostname or "", port, ssl=True if is_secure else None
            )
            whole_path = parts.path.rstrip("/") + path
            transport.write(_request(whole_path, parts.netloc.rpartition("@")[2], protocol, headers))
            head, rest = await answer.head
            if head.split(b" ", 2)[1:2] == [b"101"]:
                return transport, rest
            transport.resume_reading()
            raise _refusal(await answer.body(head))
    except OSError as error:
        if transport is not None:
            transport.abort()
        raise NoTunnel("node-unreachable", UNREACHABLE) from error
    except BaseException:
        if transport is not None:
            transport.abort()
        raise


def _seen(answer: asyncio.Future[Any]) -> None:
    """Read the error of a future, as the event loop logs errors that nobody reads."""
    if not answer.cancelled():
        answer.exception()


class _Answer(asyncio.Protocol):
    """Reads the gateway's answer up to the end of its head, after which the tunnel begins."""

    def __init__(self) -> None:
        self.head: asyncio.Future[tuple[bytes, bytes]] = asyncio.get_running_loop().create_future()
        self.head.add_done_callback(_seen)  # the caller may have given up
        self._more = asyncio.Event()
        self._said = bytearray()
        self._has_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._said += data
        self._more.set()
        if self.head.done():
            return
        end = self._said.find(b"\r\n\r\n")
        if end >= 0:
            self._transport.pause_reading()
            self.head.set_result((bytes(self._said[:end]), bytes(self._said[end + 4 :])))
            del self._said[: end + 4]
        elif len(self._said) > _LARGEST_HEAD:
            self.head.set_exception(ConnectionError(Message("the gateway sent too much")))

    def connection_lost(self, error: Exception | None) -> None:
        self._has_ended = True
        self._more.set()
        if not self.head.done():
            self.head.set_exception(ConnectionError(Message("the gateway closed the connection")))

    async def body(self, head: bytes) -> bytes:
        """Return the body of an answer that refuses the tunnel."""
        length = re.search(rb"(?i)\r\ncontent-length: *(\d{1,5})", head)
        wanted = min(int(length[1]) if length else 0, _LARGEST_HEAD)
        while len(self._said) < wanted and not self._has_ended:
            self._more.clear()
            await self._more.wait()
        return bytes(self._said[:wanted])


def _request(path: str, host: str, protocol: str, headers: Mapping[str, str]) -> bytes:
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: {host}",
        "Connection: Upgrade",
        f"Upgrade: {protocol}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _refusal(body: bytes) -> NoTunnel:
    try:
        said = json.loads(body)
        return NoTunnel(str(said["code"]), str(said["detail"])[:500])
    except (ValueError, KeyError, TypeError, RecursionError):
        return NoTunnel("node-unreachable", Message("The agent of this session gave an unexpected answer."))
