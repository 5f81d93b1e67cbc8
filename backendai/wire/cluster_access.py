"""How the kernels of one session reach each other: their host names and addresses, and the SSH keys that they share."""

from __future__ import annotations

from pydantic import Field

from backendai.wire.fields import Order

SSH_PORT = 2222  # where the SSH server of a kernel with a network of its own listens


class Peer(Order):
    """A kernel of the same session: its host name and, when known, its address on the session's network. ``slots``: how
    many processes of a parallel program it takes; ``ssh_port``: the port where its SSH server accepts the other
    kernels."""

    hostname: str
    address: str | None = None
    role: str = "main"
    rank: int = 0
    slots: int = 1
    ssh_port: int = SSH_PORT


class ClusterKeys(Order):
    """The SSH keys that all kernels of one session share: ``login`` is the client key, ``host`` the host key. Both are
    seeds of Ed25519 keys in hexadecimal, because an OpenSSH key file differs each time that it is made."""

    login: str = Field(repr=False)
    host: str = Field(repr=False)
