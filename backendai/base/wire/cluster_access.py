"""Describes how the kernels of one session reach each other: host names, addresses, and the SSH keys that they
share."""

from __future__ import annotations

from pydantic import Field

from backendai.base.wire.fields import Order

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
