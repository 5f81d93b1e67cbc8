"""The network of a session with kernels on several agents: one virtual Ethernet across these agents.

Every agent has a bridge with the same subnet; VXLAN connects the bridges. A kernel's rank determines its address. Each
agent's bridge has its own gateway address, so that no two agents answer for the same address.
"""

from __future__ import annotations

import ipaddress
import zlib

from pydantic import Field

from backendai.base.wire.fields import Order

DEFAULT_POOL = "10.89.0.0/16"  # of one agent, unless BACKENDAI_NETWORK_POOL names another
SUBNET_BITS = 26  # 62 addresses: 16 kernels from the lowest up, 16 agents from the highest down
_NUMBER_BITS = 12


class ClusterNetwork(Order):
    """A session's network as one agent needs it. ``remotes``: addresses of the other agents. ``address``: the address
    of the kernel to start. The spec's peers contain the addresses of all kernels."""

    vni: int = Field(ge=1, lt=2**24)
    subnet: str
    gateway: str
    address: str
    remotes: list[str] = Field(default_factory=list)


def most_networks(pool: str) -> int:
    """Return how many networks fit into this address pool."""
    number = ipaddress.IPv4Network(pool).num_addresses >> (32 - SUBNET_BITS)
    return min(number, 1 << _NUMBER_BITS)


def subnet_of(pool: str, number: int) -> ipaddress.IPv4Network:
    """Return the subnet of the network with this number (from 0) in the address pool."""
    base = int(ipaddress.IPv4Network(pool).network_address)
    return ipaddress.IPv4Network((base + (number << (32 - SUBNET_BITS)), SUBNET_BITS))


def kernel_address(subnet: ipaddress.IPv4Network, rank: int) -> str:
    """Return the address of the session's kernel with this rank (from 0)."""
    return str(subnet.network_address + 1 + rank)


def gateway_address(subnet: ipaddress.IPv4Network, place: int) -> str:
    """Return the address of the bridge on one of the session's agents. ``place``: the agent's number among them, from
    0."""
    return str(subnet.broadcast_address - 1 - place)


def vni_of(deployment: str, number: int) -> int:
    """Return the VXLAN identifier of the network with this number. Its upper 12 bits are a hash of the deployment's
    name, so that deployments on the same agents rarely share an identifier."""
    own = zlib.crc32(deployment.encode()) % ((1 << _NUMBER_BITS) - 1) + 1
    return own << _NUMBER_BITS | number


SSH_PORT = 2222  # port of the SSH server in a kernel with its own network


class Peer(Order):
    """A kernel of the same session: its host name and, if known, its address on the session's network. ``slots``: how
    many processes of a parallel program it runs. ``ssh_port``: the port of its SSH server for other kernels of the
    session."""

    hostname: str
    address: str | None = None
    role: str = "main"
    rank: int = 0
    slots: int = 1
    ssh_port: int = SSH_PORT


class ClusterKeys(Order):
    """The SSH keys that all kernels of one session share: ``login`` is the client key, ``host`` the host key.

    Both are seeds of Ed25519 keys in hexadecimal. A seed always gives the same key, while OpenSSH files of the same key
    differ.
    """

    login: str = Field(repr=False)
    host: str = Field(repr=False)
