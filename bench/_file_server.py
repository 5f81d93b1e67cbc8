"""A file server of the benchmark's own, others to compare it with, and a plain HTTP client for all of them."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from backendai.base.paths.storage_layout import Marker, folder_path, write_marker
from backendai.base.wire.folder_tickets import sign_folder_ticket
from backendai.base.wire.tickets import new_private_key, public_key_of
from bench._portal import free_port, say

_ROOT = Path(__file__).resolve().parent.parent
CHUNK = 2**20
_DEPLOYMENT = "bench"
_NGINX = """daemon off; user root; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{}} http {{ access_log off; client_max_body_size 0; client_body_temp_path {folder}/body; sendfile on;
server {{ listen 127.0.0.1:{port}; root {root}; dav_methods PUT; }} }}"""


class Server:
    """A file server. ``folder``: the one that requests are about unless they say otherwise."""

    def __init__(self, root: Path) -> None:
        self.root, self.key, self.folder, self.port = root, new_private_key(), uuid.uuid4(), free_port()
        write_marker(root, Marker(_DEPLOYMENT, "local", os.geteuid()))
        told = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(_ROOT),
            "BACKENDAI_STORAGE_HOSTS": f"local={root}",
            "BACKENDAI_FILES_BIND": f"127.0.0.1:{self.port}",
            "BACKENDAI_FILES_PUBLIC_KEY": public_key_of(self.key),
            "BACKENDAI_DEPLOYMENT": _DEPLOYMENT,
            "BACKENDAI_LOG_LEVEL": "WARNING",
        }
        self.process = subprocess.Popen([sys.executable, "-m", "backendai.files"], env=told)
        try:
            await_port(self.port)
            self.ask("PUT", "", b"{}")
        except BaseException:
            self.stop()
            raise
        self.data = folder_path(root, self.folder) / "data"

    def stop(self) -> None:
        """End the process and wait."""
        self.process.terminate()
        self.process.wait()

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        connection: Any = None,
        folder: uuid.UUID | None = None,
        version: int = 1,
        **headers: str,
    ) -> bytes:
        """Return the answer's first bytes; the rest of a large one is thrown away as it comes."""
        about = folder or self.folder
        told: dict[str, Any] = {"folder_id": about, "version": version, "rights": "manage", "now": time.time()}
        headers["Authorization"] = f"Bearer {sign_folder_ticket(self.key, host='local', **told)}"
        one = connection or connect(self.port)
        one.request(method, f"/v1/folders/{about}{path}", body=body, headers=headers)
        return drain(one)

    def peak_memory(self) -> float:
        """Return the most memory that the process has had, in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024


@contextlib.contextmanager
def nginx(root: Path, folder: Path) -> Iterator[int]:
    """Give the port of an nginx that serves the same files and takes PUT; 0 where it is not installed."""
    program, port, config = shutil.which("nginx"), free_port(), folder / "nginx.conf"
    if program is None:
        say("nginx is not installed: nothing to compare with")
        yield 0
        return
    config.write_text(_NGINX.format(folder=folder, port=port, root=root))
    process = subprocess.Popen([program, "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await_port(port)
        yield port
    finally:
        process.terminate()
        process.wait()


def put_file(port: int, path: str, source: Path, ask: Callable[..., bytes] | None = None) -> None:
    """Send a file with one PUT: by ``ask`` to a file server, else to another program."""
    headers = {"Content-Length": str(source.stat().st_size)}
    with source.open("rb") as file:
        if ask is not None:
            ask("PUT", path, file, **headers)
            return
        connection = connect(port)
        connection.request("PUT", path, body=file, headers=headers)
        drain(connection)


def get(port: int, path: str) -> bytes:
    """Receive a file; returns its first bytes."""
    connection = connect(port)
    connection.request("GET", path)
    return drain(connection)


def connect(port: int) -> http.client.HTTPConnection:
    """Return a connection that moves large pieces."""
    return http.client.HTTPConnection("127.0.0.1", port, blocksize=CHUNK)


def drain(one: http.client.HTTPConnection) -> bytes:
    """Return the first bytes of a response, after receiving all of it. Raises RuntimeError for an error."""
    answer, first = one.getresponse(), b""
    buffer = bytearray(CHUNK)
    while read := answer.readinto(buffer):
        first = first or bytes(buffer[:read])
    if answer.status >= 400:
        raise RuntimeError(f"{answer.status}: {first[:300]!r}")
    return first


def await_port(port: int) -> None:
    """Wait until something listens there."""
    until = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
