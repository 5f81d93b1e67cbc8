"""Short addresses for Unix sockets: an address is limited to 108 bytes, a path is not."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

SOCKET = "agent.sock"  # its name in the folder that guest and agent share


@contextlib.contextmanager
def short_address(path: Path) -> Iterator[str]:
    """Return an address of the socket at ``path`` that is valid inside the block. Raises OSError."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def listen(path: Path, backlog: int = 16) -> socket.socket:
    """Return a socket that listens at ``path``. Raises OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_address(path) as address:
            listener.bind(address)
        listener.listen(backlog)
    except OSError:
        listener.close()
        raise
    return listener


def connect(path: Path, seconds: float | None = None, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    """Return a connection to the socket at ``path``. Raises OSError.

    ``seconds``: the time limit of each call (None: no limit, 0: calls do not block). ``kind``: a stream, or datagrams.
    """
    connection = socket.socket(socket.AF_UNIX, kind)
    connection.settimeout(seconds)
    try:
        with short_address(path) as address:
            connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection
