"""The line with which a proxy in front says from where a connection comes (PROXY protocol, versions 1 and 2)."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections.abc import Callable, Sequence

_SECONDS = 5.0
_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
_LONGEST_LINE = 107
_LARGEST = 536


class BadHeader(Exception):
    """What came first is no such line."""


async def read_header(connection: socket.socket, address: str, proxies: Proxies) -> str:
    """Return the client's address.

    Only these proxies may name a client. Health checks of this machine come from a loopback address and name none;
    other connections are refused. Raises BadHeader, OSError, TimeoutError.
    """
    source = unmapped(address)
    async with asyncio.timeout(_SECONDS):
        is_proxy = await proxies.include(source)
        if not is_proxy and not source.is_loopback:
            raise BadHeader("the connection does not come by a known proxy")
        client = await _client(connection)
    if client and not is_proxy:
        raise BadHeader("only a known proxy may name a client")
    return client or address


async def _client(connection: socket.socket) -> str:
    """Return the client that the header names; empty if it names none."""
    head = await _exactly(connection, len(_SIGNATURE))
    if head == _SIGNATURE:
        return await _second_version(connection)
    if not head.startswith(b"PROXY "):
        raise BadHeader("no PROXY line")
    while not head.endswith(b"\r\n"):
        if len(head) >= _LONGEST_LINE:
            raise BadHeader("the PROXY line is too long")
        head += await _exactly(connection, 1)
    return _named(head)


def _named(line: bytes) -> str:
    words = line.decode("ascii", "replace").split()
    if words[1:2] == ["UNKNOWN"]:
        return ""
    if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
        raise BadHeader("the PROXY line cannot be read")
    return _address(words[2])


async def _second_version(connection: socket.socket) -> str:
    head = await _exactly(connection, 4)
    size = int.from_bytes(head[2:], "big")
    if head[0] >> 4 != 2 or size > _LARGEST:
        raise BadHeader("the PROXY header cannot be read")
    body = await _exactly(connection, size)
    if head[0] & 0x0F == 0:  # the proxy itself asks
        return ""
    length = {0x11: 4, 0x21: 16}.get(head[1])
    if length is None:
        return ""
    if size < 2 * length + 4:
        raise BadHeader("the PROXY header is too short")
    return str(ipaddress.ip_address(body[:length]))


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError as error:
        raise BadHeader("the PROXY line names no address") from error


async def _exactly(connection: socket.socket, size: int) -> bytes:
    loop, data = asyncio.get_running_loop(), b""
    while len(data) < size:
        piece = await loop.sock_recv(connection, size - len(data))
        if not piece:
            raise BadHeader("the connection ended")
        data += piece
    return data


Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_KEPT_SECONDS = 2.0  # a container that starts again may have another address


class Proxies:
    """Addresses, networks and host names of proxies. Names are looked up at most every 2 s: one that is not found
    belongs to nobody."""

    def __init__(self, words: Sequence[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._networks, self._names = list[ipaddress.IPv4Network | ipaddress.IPv6Network](), list[str]()
        for word in words:
            try:
                self._networks.append(ipaddress.ip_network(word))
            except ValueError:
                self._names.append(word)
        self._clock, self._found, self._kept_until = clock, frozenset[Address](), float("-inf")
        self._looking = asyncio.Lock()

    def __bool__(self) -> bool:
        return bool(self._networks or self._names)

    async def include(self, source: Address) -> bool:
        """Return whether a proxy has this address; waits for the name server."""
        if any(source in network for network in self._networks):
            return True
        if self._names:
            async with self._looking:
                if self._clock() >= self._kept_until:
                    self._found = await self._look_up()
                    self._kept_until = self._clock() + _KEPT_SECONDS
        return source in self._found

    async def _look_up(self) -> frozenset[Address]:
        loop, found = asyncio.get_running_loop(), set[Address]()
        for name in self._names:
            try:
                answers = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            except OSError:
                continue
            found |= {unmapped(str(answer[4][0])) for answer in answers}
        return frozenset(found)


def unmapped(address: str) -> Address:
    """Return the address without its zone; an IPv4 address that IPv6 carries as itself."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return (isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped) or found
