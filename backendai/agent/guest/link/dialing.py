"""Connects from inside the kernel to its own ports. Reaches servers on the loopback and unix sockets."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
from pathlib import Path
from typing import Any

from backendai.agent.guest.code.checking import Refused
from backendai.agent.guest.link.sockets import gone
from backendai.base.process.slowness import allowed
from backendai.base.wire.splice import Side, take_over_streams

_MARK = "BACKENDAI_KERNEL_ID"
_LISTENING = "0A"
_DIAL_SECONDS = 5.0
_PIECE = 256 * 1024
_LOOPBACKS = ("127.0.0.1", "::1")
_MOST_KNOWN = 64
# The listening sockets of this kernel that were found, by port and inode: where they are open, and their address. While
# that file is that socket, nothing else listens there, and the machine's table of sockets takes milliseconds to read.
_known: dict[int, dict[str, tuple[Path, str]]] = {}


async def dial(
    order: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, shares_network: bool
) -> None:
    """Connect the stream with the order's ``socket``, if given, else with its ``port`` of this kernel.

    The requester receives ``{}`` and sends an empty line; then the bytes are those of the port. On a shared network
    only ports of this kernel's processes are opened; the guest agent of another kernel opens that kernel's ports.
    Raises Refused.
    """
    if order.get("host"):
        raise Refused("other-kernel", "The SSH gate is of an older version: restart it to reach other kernels by name.")
    near = await _connected(str(order.get("socket") or ""), int(order["port"]), shares_network)
    try:
        writer.write(b"{}\n")
        # As much as is read at once: what does not fit is copied twice until it does.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _PIECE)
        await reader.readline()
        await _join(near, take_over_streams(reader, writer), writer)
    finally:
        near.abort()


async def _join(near: Side, far: Side, writer: asyncio.StreamWriter) -> None:
    """Copy bytes both ways until both sides have ended or the requester disconnects."""
    leaving = asyncio.ensure_future(gone(writer))
    near.join(far)
    far.join(near)
    try:
        await asyncio.wait([near.lost, leaving], return_when=asyncio.FIRST_COMPLETED)
        # A requester whose both directions have ended looks like one that has disconnected.
        if near.has_ended:
            await near.lost  # flush the last bytes to the port
        else:
            near.reset()
    finally:
        leaving.cancel()


async def _connected(path: str, port: int, shares_network: bool) -> Side:
    loop = asyncio.get_running_loop()
    if path:
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            return (await asyncio.wait_for(loop.create_unix_connection(Side, path), allowed(_DIAL_SECONDS)))[1]
    for address in _own_addresses(port) if shares_network else (*_LOOPBACKS, socket.gethostname()):
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            return (await asyncio.wait_for(loop.create_connection(Side, address, port), allowed(_DIAL_SECONDS)))[1]
    where = f"on {path}" if path and not port else f"on port {port}"
    raise Refused("app-not-listening", f"Nothing is listening {where}.")


def _own_addresses(port: int) -> list[str]:
    """Return the addresses at which processes of this kernel listen on the port. A listener on all addresses is
    returned as loopback, which no other program can bind."""
    known = _known.get(port, {})
    if not known or not all(_socket_at(file) == inode for inode, (file, _) in known.items()):
        listening = _listeners(port)
        own = _own_sockets(set(listening)) if listening else {}
        known = _known[port] = {inode: (file, _reached(listening[inode])) for inode, file in own.items()}
        while len(_known) > _MOST_KNOWN:
            del _known[next(iter(_known))]
    return [address for _, address in known.values()]


def _listeners(port: int) -> dict[str, str]:
    """Return inode and address of every socket that listens on the port."""
    found: dict[str, str] = {}
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path("/proc/net", name).read_text().splitlines()[1:]:
                words = line.split()
                address, _, number = words[1].partition(":")
                if words[3] == _LISTENING and int(number, 16) == port:
                    found[words[9]] = _address_of(address)
    return found


def _own_sockets(wanted: set[str]) -> dict[str, Path]:
    """Return the inodes that a process of this kernel has open, and where. The kernel's mark in the environment
    identifies the process."""
    mark = f"{_MARK}={os.environ.get(_MARK, '')}".encode()
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark not in (process / "environ").read_bytes().split(b"\0"):
                continue
            found.update({inode: file for file in (process / "fd").iterdir() if (inode := _socket_at(file)) in wanted})
    return dict(sorted(found.items()))


def _socket_at(file: Path) -> str:
    """Return the inode of the socket that an open file is; empty if it is none."""
    with contextlib.suppress(OSError):
        kind, _, inode = os.readlink(file).partition(":")  # noqa: PTH115 - Python 3.8
        return inode.strip("[]") if kind == "socket" else ""
    return ""


def _address_of(text: str) -> str:
    """Return the address from a line of /proc/net/tcp: words of 4 bytes in the machine's byte order."""
    words = [bytes.fromhex(text[start : start + 8])[::-1] for start in range(0, len(text), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    return socket.inet_ntop(family, b"".join(words))


def _reached(address: str) -> str:
    told = ipaddress.ip_address(address)
    return _LOOPBACKS[told.version == 6] if told.is_unspecified else address
