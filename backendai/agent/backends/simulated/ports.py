"""Ports of simulated inference sessions: each kernel has its own loopback address with a small server.

It answers ``/health`` with 200 and other requests with their body, after the seconds in the header ``X-Sleep``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import UUID

from backendai.agent.backends.base import BackendError, KernelGone
from backendai.agent.backends.service_host import ServiceHost, ServiceSource
from backendai.agent.backends.shared.loopback import address_of

_LONGEST_SLEEP, _LARGEST = 600.0, 16 * 2**20


class SimulatedPorts(ServiceHost):
    """``port_of`` returns the port of a running kernel, 0 without one; raises KernelGone. A server starts when the
    address of its kernel is first requested."""

    def __init__(self, port_of: Callable[[UUID], int]) -> None:
        self._port_of = port_of
        self._servers: dict[UUID, ThreadingHTTPServer] = {}
        self._lock = threading.Lock()

    def address(self, kernel_id: UUID) -> str:
        port = self._port_of(kernel_id)
        if not port:
            raise BackendError("Simulated sessions have no ports.", code="apps-impossible")
        address = address_of(kernel_id)
        with self._lock:
            if kernel_id not in self._servers:
                self._servers[kernel_id] = _serve(address, port)
        return address

    def source(self, kernel_id: UUID, service: str) -> ServiceSource:
        return ServiceSource(None, {})

    def launch(self, kernel_id: UUID, service: str, command: Sequence[str], environ: Mapping[str, str]) -> str:
        raise KernelGone("A simulated session starts no apps.")

    def exit_code(self, handle: str) -> int | None:
        return None

    def log(self, kernel_id: UUID, service: str, *, limit: int) -> bytes:
        return b""

    def close(self, kernel_id: UUID) -> None:
        """Stop the server of an ended kernel."""
        with self._lock:
            server = self._servers.pop(kernel_id, None)
        if server is not None:
            server.shutdown()
            server.server_close()

    def close_all(self) -> None:
        """Stop every server."""
        for kernel_id in list(self._servers):
            self.close(kernel_id)


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60.0

    def _answer(self) -> None:
        length = self.headers.get("Content-Length", "0")
        body = self.rfile.read(min(int(length), _LARGEST)) if length.isdecimal() else b""
        with suppress(ValueError):
            time.sleep(min(max(float(self.headers.get("X-Sleep", "0")), 0.0), _LONGEST_SLEEP))
        said = b"" if self.path == "/health" else body or f"{self.command} {self.path}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(said)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Do nothing, as a probe arrives every few seconds."""


class _Server(ThreadingHTTPServer):
    daemon_threads, allow_reuse_address, request_queue_size = True, True, 128


def _serve(address: str, port: int) -> ThreadingHTTPServer:
    try:
        server = _Server((address, port), _Answers)
    except OSError as error:
        raise BackendError(
            "Port {port} of {address} cannot be used: {error}", port=port, address=address, error=str(error)
        ) from error
    threading.Thread(target=server.serve_forever, name="simulated-port", daemon=True).start()
    return server
