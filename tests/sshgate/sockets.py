"""Pages fetched through what a client of SSH forwards."""

from __future__ import annotations

import socket
import time

from tests.patience import patient


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def page_of(port: int, path: str = "/") -> bytes:
    """Return what a page says; waits for its port."""
    with _connected(port) as connection:
        return _asked(connection, path)


def page_through_socks(port: int, host: str, target: int, path: str = "/") -> bytes:
    """Return what a page says by a proxy of SOCKS 5; nothing when the proxy refuses."""
    with _connected(port) as connection:
        connection.sendall(b"\x05\x01\x00")
        assert connection.recv(2) == b"\x05\x00"
        name = host.encode()
        connection.sendall(b"\x05\x01\x00\x03" + bytes([len(name)]) + name + target.to_bytes(2, "big"))
        answer = connection.recv(10)
        return _asked(connection, path) if answer[1:2] == b"\x00" else b""


def _connected(port: int) -> socket.socket:
    until = time.monotonic() + 15
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=patient(15))
        except ConnectionRefusedError:
            assert time.monotonic() < until
            time.sleep(0.05)


def _asked(connection: socket.socket, path: str) -> bytes:
    connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    found = b""
    while data := connection.recv(65536):
        found += data
    return found
