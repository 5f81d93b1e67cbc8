"""The network of a session whose kernels lie on several agents: one Ethernet over all of its nodes.

Every node has a bridge with the same subnet; a VXLAN joins the bridges. Each kernel's address is fixed by its rank, and
each node's bridge has a gateway address of its own, so that no two machines answer for one.
"""

from __future__ import annotations

import ipaddress
import zlib

from pydantic import Field

from backendai.wire.fields import Order

DEFAULT_POOL = "10.89.0.0/16"  # of one node, where BACKENDAI_NETWORK_POOL names no other
SUBNET_BITS = 26  # 62 addresses: 16 kernels from below, as many nodes from above
_NUMBER_BITS = 12


class ClusterNetwork(Order):
    """What one node must know of it. ``remotes``: the other nodes, as this one reaches them; ``address``: that of
    the kernel to start; those of the others stand in the spec's peers."""

    vni: int = Field(ge=1, lt=2**24)
    subnet: str
    gateway: str
    address: str
    remotes: list[str] = Field(default_factory=list)


def most_networks(pool: str) -> int:
    """Return how many networks there can be at once with addresses from this pool."""
    number = ipaddress.IPv4Network(pool).num_addresses >> (32 - SUBNET_BITS)
    return min(number, 1 << _NUMBER_BITS)


def subnet_of(pool: str, number: int) -> ipaddress.IPv4Network:
    """Return the addresses of the network with this number, counted from 0."""
    base = int(ipaddress.IPv4Network(pool).network_address)
    return ipaddress.IPv4Network((base + (number << (32 - SUBNET_BITS)), SUBNET_BITS))


def kernel_address(subnet: ipaddress.IPv4Network, rank: int) -> str:
    """Return the address of the kernel of this rank."""
    return str(subnet.network_address + 1 + rank)


def gateway_address(subnet: ipaddress.IPv4Network, place: int) -> str:
    """Return the address of the bridge on the session's node at this place, counted from 0."""
    return str(subnet.broadcast_address - 1 - place)


def vni_of(deployment: str, number: int) -> int:
    """Return the number that tells networks apart on the wire, also those of several deployments on the same nodes."""
    own = zlib.crc32(deployment.encode()) % ((1 << _NUMBER_BITS) - 1) + 1
    return own << _NUMBER_BITS | number
