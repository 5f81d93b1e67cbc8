"""Loopback addresses of this machine for kernels without a network of their own."""

from __future__ import annotations

import hashlib
import ipaddress
from uuid import UUID

ANY_HOST = "0.0.0.0"  # noqa: S104  (what a server inside of a container listens on)
_FIRST = int(ipaddress.IPv4Address("127.64.0.1"))
_NUMBER = 2**22 - 2


def address_of(kernel_id: UUID) -> str:
    """Return the kernel's address: the same after a restart, and almost never equal for two kernels."""
    number = int.from_bytes(hashlib.sha256(kernel_id.bytes).digest()[:4]) % _NUMBER
    return str(ipaddress.IPv4Address(_FIRST + number))
