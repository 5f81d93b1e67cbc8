"""Chooses the addresses and ports on which the platform listens."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable

from backendai.base.core.errors import UserError
from backendai.files.config import DEFAULT_BIND, read_bind, read_settings
from backendai.ops.run.data_folder import StartRefused
from backendai.ops.run.fleet import Choice

_SSH_PORT, _SSH_TRIES = 2200, 100
_LOOPBACK = "127.0.0.1"
# The file server listens as far from the portal's port as usual: its address stays the same from start to start.
_FILES_AFTER_PORTAL = read_bind(DEFAULT_BIND)[1] - 8080


class PortClaims:
    """The ports that this ``bin/up`` has chosen.

    Its processes bind them seconds later; until then another ``bin/up`` could choose them too. A claim is a socket in
    Linux's abstract namespace. It exists once per network namespace, as ports do, and ends with this process. A chosen
    port is claimed for all addresses, a given port also for its own: others may listen on it at another address.
    """

    def __init__(self) -> None:
        self._held: dict[int, list[socket.socket]] = {}
        self.refused: set[int] = set()  # given ports that another process has claimed

    def choose(self, host: str, ports: Iterable[int]) -> int:
        """Claim and return the first free one of these ports, else any free port."""
        for port in ports:
            if found := self._take(host, port):
                return found
        while not (found := self._take(host, bind(host, 0))):
            pass
        return found

    def keep(self, host: str, *ports: int) -> None:
        """Claim given ports of an address; those that another process has claimed are ``refused``. 0 means no port."""
        for port in set(ports) - {0} - self._held.keys():
            if claim := _claim(_at(host, port)):
                self._held[port] = [claim, *filter(None, [_claim(str(port))])]
            else:
                self.refused.add(port)

    def close(self) -> None:
        """Release the claims."""
        for claims in self._held.values():
            _close(claims)

    def _take(self, host: str, port: int) -> int:
        """Claim the port and return it; 0 if it is not free."""
        claims = list(filter(None, [_claim(str(port)), _claim(_at(host, port))]))
        try:
            if len(claims) == 2 and bind(host, port):
                self._held[port] = claims
                return port
        except (OSError, OverflowError):
            pass
        _close(claims)
        return 0


def apps_port(claims: PortClaims, host: str, portal_port: int) -> int:
    """Return the port after the portal's, or another free one."""
    return claims.choose(host, [portal_port + 1])


def ssh_port(claims: PortClaims, host: str) -> int:
    """Return the first free port from 2200 on."""
    return claims.choose(host, range(_SSH_PORT, _SSH_PORT + _SSH_TRIES))


def bind(host: str, port: int) -> int:
    """Return the port if the process can listen on it; with 0 any free port. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        trial.bind(address)
        return int(trial.getsockname()[1])


def check_ports(choice: Choice, claims: PortClaims) -> None:
    """Raise Refused for the first port that cannot be used."""
    ports = (("--port", "BACKENDAI_PORT", choice.port), ("--apps-port", "BACKENDAI_APPS_PORT", choice.apps_port))
    for option, variable, port in (*ports, ("--ssh-port", "BACKENDAI_SSH_PORT", choice.ssh_port)):
        _check_claim(claims, port, f"{option} N or {variable}=N")
        try:
            bind(choice.host, port)
        except OSError as error:
            raise StartRefused(
                f"Port {port} on {choice.host} cannot be used: {error.strerror}. Choose another with {option} N."
            ) from error
    _check_claim(claims, read_bind(choice.files_bind)[1], "BACKENDAI_FILES_BIND=ADDRESS:N")


def _check_claim(claims: PortClaims, port: int, setting: str) -> None:
    if port in claims.refused:
        text = f"Port {port} belongs to another bin/up on this machine, which runs or is starting."
        raise StartRefused(f"{text} Choose another with {setting}, or stop the other bin/up.")


def files_bind(claims: PortClaims, portal_port: int) -> str:
    """Return the address and port of the file server. Raises Refused for settings that the file server would reject."""
    try:
        settings = read_settings(os.environ)
        if told := os.environ.get("BACKENDAI_FILES_BIND"):
            bind(settings.address, settings.port)
            claims.keep(settings.address, settings.port)
            return told
    except UserError as error:
        raise StartRefused(f"{error.message} .env.example says more.") from error
    except OSError as error:
        raise StartRefused(f"BACKENDAI_FILES_BIND: this machine cannot listen there ({error.strerror}).") from error
    return f"{_LOOPBACK}:{claims.choose(_LOOPBACK, [portal_port + _FILES_AFTER_PORTAL])}"


def listens(address_and_port: str) -> bool:
    """Return whether a process listens on this address and port."""
    try:
        with socket.create_connection(read_bind(address_and_port), timeout=1):
            return True
    except OSError:
        return False


def _at(host: str, port: int) -> str:
    return f"{port}-{host}"[:80]  # a name in the namespace has at most 107 bytes


def _close(claims: Iterable[socket.socket]) -> None:
    for claim in claims:
        claim.close()


def _claim(name: str) -> socket.socket | None:
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0backendai-port-{name}")
    except OSError:
        claim.close()
        return None
    return claim
