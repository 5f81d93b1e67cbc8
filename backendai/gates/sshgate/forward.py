"""Channels that lead to a port or socket in the kernel (``ssh -L``, ``ssh -D``)."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Container
from typing import Any

import asyncssh

from backendai.gates.sshgate.link import Link
from backendai.gates.sshgate.visit import ForwardUse, Visit

_HERE = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})
LONGEST_PATH = 107


class Forward(asyncssh.SSHTCPSession[bytes]):
    """Relays one channel to one port; also to one socket of a path."""

    def __init__(self, visit: Visit, link: Link) -> None:
        self._visit, self._link, self._use = visit, link, ForwardUse()
        self._is_done = self._has_ended = self._has_client_ended = False

    def connection_made(self, chan: Any) -> None:
        """Keep the channel, which is counted since it was asked for."""
        self._channel = chan

    def session_started(self) -> None:
        """Let the answers through."""
        self._link.join(self)

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        """Pass on what the client sends."""
        self._visit.used(received=len(data), counts=self._use.counts(len(data)))
        self._link.write(data)

    def eof_received(self) -> bool:
        """Pass on the end; the other direction stays open."""
        self._has_client_ended = True
        self._link.end_writing()
        return True

    def pause_writing(self) -> None:
        """The client does not keep up."""
        self._link.pause()

    def resume_writing(self) -> None:
        """The client keeps up again."""
        self._link.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the connection in the kernel; what both sides have ended is still sent."""
        self._visit.channels -= 1
        self._is_done = True
        if self._has_ended and self._has_client_ended:
            self._link.finish()
        else:
            self._link.close(at_once=True)

    def wait(self) -> None:
        """Take nothing from the client for now."""
        if not self._is_done:
            self._channel.pause_reading()

    def go_on(self) -> None:
        """Take from the client again."""
        if not self._is_done:
            self._channel.resume_reading()

    def hear(self, data: bytes) -> None:
        """Pass on what comes from the port."""
        if not self._is_done:
            self._visit.used(sent=len(data), counts=False)
            with contextlib.suppress(OSError):
                self._channel.write(data)

    def hear_end(self) -> None:
        """The port says no more; a second time: it is gone."""
        if self._has_ended:
            self._channel.close()
        elif not self._is_done:
            self._has_ended = True
            with contextlib.suppress(OSError):
                self._channel.write_eof()


def inside(host: str, neighbours: Container[str]) -> str | None:
    """Return whose ports are asked for: empty for those of the kernel itself, or the name of a kernel of its session,
    whose own guest agent then dials. None for every other host: the network of the agents is no business of people."""
    name = host.strip("[]").rstrip(".").lower()
    if name in _HERE or name == "":
        return ""
    if name in neighbours:
        return name
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None) or address
    return "" if mapped.is_loopback or mapped.is_unspecified else None
