"""Unix sockets: short addresses, as one is limited to 108 bytes and a path is not; and the end of the other side."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path

_LOOK_SECONDS = 1.0
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


async def gone(writer: asyncio.StreamWriter) -> None:
    """Return when the other side has closed the connection.

    The event loop detects that only while it reads, and nothing is read while a program or port does not accept input.
    Polls once a second.
    """
    looking = select.poll()
    looking.register(writer.get_extra_info("socket").fileno(), 0)  # poll always reports a hang-up
    while True:
        if looking.poll(0):
            return
        await asyncio.sleep(_LOOK_SECONDS)
