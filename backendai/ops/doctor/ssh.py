"""Checks that the SSH gate answers, with the published host key."""

from __future__ import annotations

import asyncio
import socket

import asyncssh
from django.conf import settings

from backendai.gateways.site_keys import host_key, public_text
from backendai.ops.doctor.check import Check, ok, problem, warning

_NAME = "ssh gate"
_PATIENCE = 3.0  # seconds; a gate on this machine shows its key within 50 ms
_ANYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # where a listener on any address is asked


def ssh() -> list[Check]:
    """Return whether the SSH gate answers with the site's host key; empty if SSH is off."""
    return [gate(settings.SSH_HOST, settings.SSH_PORT)] if settings.SSH_PROCESSES else []


def gate(host: str, port: int) -> Check:
    """Return whether a gate with the site's host key listens here."""
    asked = _ANYWHERE.get(host, host)
    try:
        shown = asyncio.run(_key_at(asked, port))
    except (OSError, asyncssh.Error, TimeoutError):
        fix = "./bin/up starts it; by itself: manage.py sshgate. BACKENDAI_SSH_PORT names its port."
        return warning(_NAME, f"no SSH server answers on {asked} port {port}: sessions are not reached by SSH", fix)
    if shown.split()[:2] != public_text(host_key()).split()[:2]:
        fix = "Set another BACKENDAI_SSH_PORT for this portal, or one BACKENDAI_SSH_HOST_KEY for all its gates."
        return problem(_NAME, f"port {port} belongs to a server with another host key: clients will refuse it", fix)
    return ok(_NAME, f"answers on port {port} with the host key that the pages show")


async def _key_at(host: str, port: int) -> str:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(_PATIENCE):
        with await loop.run_in_executor(None, socket.create_connection, (host, port), _PATIENCE) as connection:
            connection.setblocking(False)
            if settings.SSH_PROXIES:
                await loop.sock_sendall(connection, b"PROXY UNKNOWN\r\n")  # a gate behind a proxy waits for it
            key = await asyncssh.get_server_host_key(sock=connection, config=None)
    if key is None:
        raise ConnectionError("the server has shown no host key")
    return key.export_public_key("openssh").decode()
