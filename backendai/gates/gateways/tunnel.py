"""Tunnels to the ports of kernels through their agent's gateway, reused while they are open.

A tunnel belongs to one port of one generation of a kernel. It breaks when the kernel ends, so it cannot lead to another
kernel.
"""

from __future__ import annotations

import asyncio
import json
import re
import select
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, cast
from urllib.parse import urlsplit

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import BaseConnector, sentinel
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.gates.gateways.dialing import DIAL_SECONDS
from backendai.gates.gateways.targets import Target
from backendai.gates.gateways.tickets import ticket_for

SILENCE_SECONDS = 300.0
KEPT_SECONDS = 1.5  # common servers close an idle connection after 2 s (gunicorn) or 5 s (uvicorn, Node)
_LARGEST_HEAD = 16 * 1024
_BUFFER = 64 * 1024
LARGEST_HEADER = 32 * 1024
_LONGEST_SECONDS = 3 * DIAL_SECONDS
_UNREACHABLE = Message("The agent of this session is not reachable.")
_target: ContextVar[Target] = ContextVar("target")
_is_reused: ContextVar[bool] = ContextVar("is_reused", default=False)


class NoTunnel(aiohttp.ClientConnectionError):
    """The agent's gateway does not open a tunnel; ``code`` is the cause."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class TunnelConnector(BaseConnector):
    """Connects to the target of the current request. An agent that opens no tunnel within ``patience`` seconds counts
    as unreachable, if another one can be asked (None: within the time limit of a tunnel).

    A kept connection is used again within ``KEPT_SECONDS``, and only if its end has not arrived. So a server that
    closes idle connections rarely gets a request meanwhile. What remains: its end is still on the way when the request
    leaves. Then nobody can tell that from a server that broke off, and only requests that may be executed twice are
    sent again.
    """

    def __init__(self, *, patience: float | None = None, **options: Any) -> None:
        super().__init__(keepalive_timeout=sentinel if options.get("force_close") else KEPT_SECONDS, **options)
        self._patience = patience

    async def _get(self, key: Any, traces: Any) -> Any:
        while (kept := await super()._get(key, traces)) is not None:
            if kept.transport is not None and not _has_news(kept.transport):
                _is_reused.set(True)
                return kept
            kept.close()
        return None

    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> ResponseHandler:  # noqa: ASYNC109
        _is_reused.set(False)
        try:
            async with asyncio.timeout(self._patience):
                transport, rest = await open_tunnel(_target.get())
        except TimeoutError as error:
            raise NoTunnel("node-unreachable", _UNREACHABLE) from error
        protocol: ResponseHandler = self._factory()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        transport.resume_reading()
        if rest:
            protocol.data_received(rest)
        return protocol


def new_client(*, replays: bool, connector: TunnelConnector) -> aiohttp.ClientSession:
    """Return a client that passes requests and answers unchanged.

    With ``replays`` it repeats a request whose connection was closing at that moment.
    """
    client = aiohttp.ClientSession(
        connector=connector,
        connector_owner=False,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=DIAL_SECONDS, sock_read=SILENCE_SECONDS),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        read_bufsize=_BUFFER,
        max_line_size=LARGEST_HEADER,
        max_field_size=LARGEST_HEADER,
    )
    client._retry_connection = replays
    return client


def was_reused() -> bool:
    """Return whether this task's latest request went over a kept connection, which its server may have just closed."""
    return _is_reused.get()


def address_through(target: Target, raw_path: str) -> str:
    """Return the URL for a path of the target, and make this task's tunnels lead there.

    Connections are kept by the name in it, so visitors never share a connection.
    """
    _target.set(target)
    name = f"k{target.kernel_id.hex}.g{target.generation}.v{target.visitor}.{target.service}"
    return f"http://{name}:{target.port}{raw_path}"


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
        raise NoTunnel("node-unreachable", _UNREACHABLE) from error
    except BaseException:
        if transport is not None:
            transport.abort()
        raise


def _has_news(transport: asyncio.Transport) -> bool:
    """Return whether bytes or the end have arrived on an idle connection. The event loop may not have read them yet."""
    found = select.poll()
    found.register(transport.get_extra_info("socket").fileno(), select.POLLIN | select.POLLRDHUP)
    return bool(found.poll(0))


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
