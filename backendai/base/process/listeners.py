"""Addresses at which a machine reaches its own servers."""

from __future__ import annotations

import ipaddress

_LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (compared, not bound)


def reached_at(host: str) -> str:
    """Return where a server that listens on ``host`` is reached from its own machine."""
    return _LOOPBACK.get(host, host)


def in_url(host: str) -> str:
    """Return a host as URLs contain it: an IPv6 address has brackets."""
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Return whether a host is an address, or the usual name, of the machine that asks."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
