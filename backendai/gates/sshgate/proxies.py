"""The proxies in front of the gate that may name clients."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections.abc import Callable, Sequence

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
