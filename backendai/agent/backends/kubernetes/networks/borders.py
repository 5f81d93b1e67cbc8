"""Network borders of a pool: where its agent connects from, and what kernels must not reach."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import socket
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.kubernetes.api.client import Api
from backendai.agent.backends.shared.packet_rules import shielded_addresses

logger = logging.getLogger(__name__)

# The metadata services of clouds, which return credentials, and link-local addresses.
_NEVER = ("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32")
_EVERYTHING = ("0.0.0.0/0", "::/0")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Borders:
    """``outside``: the agent reaches pods from outside the cluster. ``sources``: its addresses; empty: the one that it
    uses for the API. Names are resolved once."""

    def __init__(self, api: Api, *, outside: bool, sources: Sequence[str] = ()) -> None:
        self._api, self._outside, self._told = api, outside, sources

    def sources(self) -> list[dict[str, Any]]:
        """Return the address blocks of an agent outside the cluster, as policies name them."""
        if not self._outside:
            return []
        found = map(_network, self._told) if self._told else self._own
        return [{"ipBlock": {"cidr": str(one)}} for one in found]

    def ways_out(self) -> list[dict[str, Any]]:
        """Return the destinations that kernels may reach: all but the API, the platform and link-local addresses."""
        kept = {*map(_network, _NEVER), *map(_network, shielded_addresses()), *self._of_api}
        ways = []
        for whole in map(ipaddress.ip_network, _EVERYTHING):
            except_for = sorted(str(one) for one in kept if one.version == whole.version)
            ways.append({"ipBlock": {"cidr": str(whole), "except": except_for}})
        return ways

    @cached_property
    def _of_api(self) -> set[Network]:
        """The API's addresses: the one in use, and those that it reports."""
        names = [urlsplit(self._api.access.server).hostname or ""]
        with contextlib.suppress(BackendError, KeyError, TypeError):
            for one in self._api.ask("GET", "/api")["serverAddressByClientCIDRs"]:
                names.append(str(urlsplit(f"//{one['serverAddress']}").hostname or ""))
        return {_network(address) for name in names for address in _addresses(name)}

    @cached_property
    def _own(self) -> list[Network]:
        """The address from which this machine reaches the API."""
        host = urlsplit(self._api.access.server).hostname or ""
        for address in _addresses(host):
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((address, 9))  # selects a route, sends no packet
                return [_network(probe.getsockname()[0])]
        return []


def _addresses(name: str) -> Iterator[str]:
    """Yield a name's addresses, without loopback addresses."""
    try:
        found: Iterable[Any] = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM) if name else ()
    except OSError as error:
        logger.warning("the address of %s is not known: %s", name, error)
        return
    for *_, address in found:
        if not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
            yield str(address[0]).partition("%")[0]


def _network(text: str) -> Network:
    return ipaddress.ip_network(text, strict=False)
