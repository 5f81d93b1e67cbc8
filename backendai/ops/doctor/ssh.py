"""Checks that the SSH gate answers, with the published host key."""

from __future__ import annotations

import asyncio
import contextlib

import asyncssh
from django.conf import settings

from backendai.base.process.listeners import is_loopback, reached_at
from backendai.gates.gateways.site_keys import host_key, public_text
from backendai.ops.alive import connect_to_gate
from backendai.ops.doctor.check import Check, ok, problem, warning

_NAME = "ssh gate"
_PATIENCE = 3.0  # seconds; a gate on this machine shows its key within 50 ms
_NO_KEY = (OSError, asyncssh.Error, TypeError)  # asyncssh raises TypeError for a peer that closed before it began


def ssh() -> list[Check]:
    """Return whether the SSH gate answers with the site's host key; empty if SSH is off."""
    return [gate(settings.SSH_HOST, settings.SSH_PORT)] if settings.SSH_PROCESSES else []


def gate(host: str, port: int) -> Check:
    """Return whether a gate with the site's host key listens here."""
    asked = reached_at(host)
    try:
        shown = asyncio.run(_key_at(asked, port))
    except OSError:
        return _absent(asked, port)
    if not shown and settings.SSH_PROXIES and not is_loopback(asked):
        return ok(_NAME, f"listens on port {port}, and shows its host key to BACKENDAI_SSH_PROXIES only")
    if not shown:
        return _absent(asked, port)
    if shown.split()[:2] != public_text(host_key()).split()[:2]:
        fix = "Set another BACKENDAI_SSH_PORT for this portal, or one BACKENDAI_SSH_HOST_KEY for all its gates."
        return problem(_NAME, f"port {port} belongs to a server with another host key: clients will refuse it", fix)
    return ok(_NAME, f"answers on port {port} with the host key that the pages show")


def _absent(host: str, port: int) -> Check:
    fix = "./bin/up starts it; by itself: manage.py sshgate. BACKENDAI_SSH_PORT names its port."
    return warning(_NAME, f"no SSH server answers on {host} port {port}: sessions are not reached by SSH", fix)


async def _key_at(host: str, port: int) -> str:
    """Return the host key of a server; empty if the server shows none. Raises OSError if nothing listens."""
    # The balancer of docker compose expects the PROXY protocol of BACKENDAI_SSH_PROXIES, and none of this machine.
    for says_unknown in (True, False) if settings.SSH_PROXIES else (False,):
        connection = await asyncio.to_thread(connect_to_gate, host, port, says_unknown=says_unknown, seconds=_PATIENCE)
        with connection, contextlib.suppress(*_NO_KEY):
            connection.setblocking(False)
            async with asyncio.timeout(_PATIENCE):
                if key := await asyncssh.get_server_host_key(sock=connection, config=None):
                    return key.export_public_key("openssh").decode()
    return ""
