"""Sends simple requests to the Docker Engine's socket, without a client library."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
from typing import Any
from urllib.parse import urlsplit

from backendai.base.process.packages import install_command

_DEFAULT = "unix:///var/run/docker.sock"


_ABSENT = f"Install and start Docker ({install_command('docker.io')}); this user must be in the group docker."
_SILENT = "Start Docker (systemctl start docker), or set DOCKER_HOST to the address where it listens."
_FORBIDDEN = "Add this user to the group docker (sudo usermod -aG docker $USER) and sign in again."


class NoEngine(Exception):
    """No Docker Engine answers; the message has the reason, ``fix`` the remedy."""

    def __init__(self, message: str, fix: str = _ABSENT) -> None:
        super().__init__(message)
        self.fix = fix


def engine_address() -> str:
    """Return the expected address of the engine: DOCKER_HOST, else the default socket."""
    return os.environ.get("DOCKER_HOST") or _DEFAULT


def engine_is_expected() -> bool:
    """Return whether Docker is set up on this machine, so that a missing engine is a fault."""
    return bool(os.environ.get("DOCKER_HOST") or shutil.which("docker") or shutil.which("dockerd"))


def engine_answers(address: str | None = None) -> bool:
    """Return whether an engine answers."""
    try:
        ask_engine("/version", address)
    except NoEngine:
        return False
    return True


def ask_engine(path: str, address: str | None = None, *, timeout: float = 3.0) -> Any:
    """Return the JSON answer of the engine at ``address`` to GET ``path``. Raises NoEngine."""
    address = address or engine_address()
    connection = _connect(address, timeout)
    try:
        connection.request("GET", path, headers={"Host": "docker"})
        response = connection.getresponse()
        body = response.read()
        if response.status != http.client.OK:
            raise NoEngine(f"{address} answers {response.status} to {path}")
        return json.loads(body)
    except PermissionError as error:
        raise NoEngine(f"this user may not open {address}", _FORBIDDEN) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        fix = _SILENT if engine_is_expected() else _ABSENT
        raise NoEngine(f"nothing answers at {address} ({error})", fix) from error
    finally:
        connection.close()


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("docker", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _connect(address: str, timeout: float) -> http.client.HTTPConnection:
    parts = urlsplit(address)
    if parts.scheme == "unix":
        return _UnixConnection(parts.path, timeout)
    if parts.scheme in ("tcp", "http") and parts.hostname:
        return http.client.HTTPConnection(parts.hostname, parts.port or 2375, timeout=timeout)
    raise NoEngine(f"DOCKER_HOST={address} is not understood; use unix:///path or tcp://host:port")
