"""Connections of health checks to the SSH gate."""

from __future__ import annotations

import socket

_NO_CLIENT = b"PROXY UNKNOWN\r\n"


def connect(host: str, port: int, *, says_unknown: bool, seconds: float) -> socket.socket:
    """Return a blocking connection to a gate. ``says_unknown``: the gate waits for the PROXY protocol, and the check
    has no client to name. ``seconds``: timeout of the connection and its calls. Raises OSError."""
    connection = socket.create_connection((host, port), timeout=seconds)
    if says_unknown:
        try:
            connection.sendall(_NO_CLIENT)
        except OSError:
            connection.close()
            raise
    return connection
