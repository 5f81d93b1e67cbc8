"""Which addresses and ports of this machine the platform can listen on."""

from __future__ import annotations

import os
import socket

from backendai.core.errors import UserError
from backendai.files.config import DEFAULT_BIND, read_bind, read_settings
from backendai.ops.data_folder import Refused

_SSH_PORT, _SSH_TRIES = 2200, 100
_LOOPBACK = "127.0.0.1"
# The file server listens as far from the portal's port as usual: its address stays the same from start to start.
_FILES_AFTER_PORTAL = read_bind(DEFAULT_BIND)[1] - 8080


def next_port(host: str, port: int) -> int:
    """Return the port after this one, or when somebody has it one that is free."""
    try:
        return bind(host, port + 1)
    except (OSError, OverflowError):
        return bind(host, 0)


def ssh_port(host: str, told: int) -> int:
    """Return the port that was told, or the first one from 2200 on that is free."""
    if told:
        return told
    for port in range(_SSH_PORT, _SSH_PORT + _SSH_TRIES):
        try:
            return bind(host, port)
        except OSError:
            continue
    return bind(host, 0)


def bind(host: str, port: int) -> int:
    """Return the port once it was seen that it can be listened on; with 0 a free one."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        trial.bind(address)
        return int(trial.getsockname()[1])


def files_bind(portal_port: int) -> str:
    """Return where the file server listens. Refuses settings that it would refuse once everything else runs."""
    try:
        settings = read_settings(os.environ)
        if told := os.environ.get("BACKENDAI_FILES_BIND"):
            bind(settings.address, settings.port)
            return told
    except UserError as error:
        raise Refused(f"{error.message} .env.example says more.") from error
    except OSError as error:
        raise Refused(f"BACKENDAI_FILES_BIND: this machine cannot listen there ({error.strerror}).") from error
    return f"{_LOOPBACK}:{next_port(_LOOPBACK, portal_port + _FILES_AFTER_PORTAL - 1)}"


def listens(address_and_port: str) -> bool:
    """Return whether somebody listens there."""
    try:
        with socket.create_connection(read_bind(address_and_port), timeout=1):
            return True
    except OSError:
        return False
