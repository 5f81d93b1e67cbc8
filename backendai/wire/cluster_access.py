"""How the kernels of one session reach each other: where each is, and the keys that all of them have."""

from __future__ import annotations

from pydantic import Field

from backendai.wire.fields import Order

SSH_PORT = 2222  # where a kernel with a network of its own listens


class Peer(Order):
    """A kernel of the same session: its host name and, when known, its address on the session's network. ``slots``: how
    many processes of a parallel program it takes; ``ssh_port``: where it can be logged in to from the others."""

    hostname: str
    address: str | None = None
    role: str = "main"
    rank: int = 0
    slots: int = 1
    ssh_port: int = SSH_PORT


class ClusterKeys(Order):
    """The key by which kernels of one session log in to each other, and the one by which they are known: the seeds of
    Ed25519 keys in hexadecimal (files of OpenSSH differ each time that they are made)."""

    login: str = Field(repr=False)
    host: str = Field(repr=False)
