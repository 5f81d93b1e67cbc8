"""Connects from inside the kernel to its own ports. Reaches servers on the loopback and unix sockets."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import struct
from pathlib import Path
from typing import Any

from backendai.agent.guest.code.checking import Refused
from backendai.agent.guest.link.sockets import gone
from backendai.base.process.slowness import allowed

_MARK = "BACKENDAI_KERNEL_ID"
_LISTENING = "0A"
_DIAL_SECONDS = 5.0
_PIECE = 64 * 1024
_LOOPBACKS = ("127.0.0.1", "::1")
_RESET = struct.pack("ii", 1, 0)  # closing resets the connection, so that a server that does not read notices the end


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
        await reader.readline()
        await _join(near, reader, writer)
    finally:
        near[1].transport.abort()


async def _join(
    near: tuple[asyncio.StreamReader, asyncio.StreamWriter], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Copy bytes both ways until both sides have ended or the requester disconnects."""
    asking = asyncio.ensure_future(_pass(reader, near[1]))
    answering = asyncio.ensure_future(_pass(near[0], writer))
    leaving = asyncio.ensure_future(gone(writer))
    try:
        await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
        # A requester whose both directions have ended looks like one that has disconnected.
        if answering.done() and answering.result():
            await asking
            near[1].close()
            with contextlib.suppress(OSError):
                await near[1].wait_closed()  # flush the last bytes to the port
        else:
            near[1].get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    finally:
        for task in (asking, answering, leaving):
            task.cancel()
        await asyncio.gather(asking, answering, leaving, return_exceptions=True)


async def _connected(path: str, port: int, shares_network: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if path:
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            return await asyncio.wait_for(asyncio.open_unix_connection(path), allowed(_DIAL_SECONDS))
    for address in _own_addresses(port) if shares_network else (*_LOOPBACKS, socket.gethostname()):
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            return await asyncio.wait_for(asyncio.open_connection(address, port), allowed(_DIAL_SECONDS))
    where = f"on {path}" if path and not port else f"on port {port}"
    raise Refused("app-not-listening", f"Nothing is listening {where}.")


async def _pass(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> bool:
    """Copy bytes until the end, and close the target's writing side; returns False if a connection broke."""
    try:
        while True:
            data = await source.read(_PIECE)
            if not data:
                break
            target.write(data)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()
    except OSError:
        target.transport.abort()
        return False
    return True


def _own_addresses(port: int) -> list[str]:
    """Return the addresses at which processes of this kernel listen on the port. A listener on all addresses is
    returned as loopback, which no other program can bind."""
    listening = _listeners(port)
    own = listening and _own_sockets(set(listening))
    return [_reached(listening[inode]) for inode in own or ()]


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


def _own_sockets(wanted: set[str]) -> list[str]:
    """Return the inodes that a process of this kernel has open. The kernel's mark in the environment identifies the
    process."""
    mark = f"{_MARK}={os.environ.get(_MARK, '')}".encode()
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark not in (process / "environ").read_bytes().split(b"\0"):
                continue
            for file in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    kind, _, inode = os.readlink(file).partition(":")  # noqa: PTH115 - Python 3.8
                    if kind == "socket" and inode.strip("[]") in wanted:
                        found.add(inode.strip("[]"))
    return sorted(found)


def _address_of(text: str) -> str:
    """Return the address from a line of /proc/net/tcp: words of 4 bytes in the machine's byte order."""
    words = [bytes.fromhex(text[start : start + 8])[::-1] for start in range(0, len(text), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    return socket.inet_ntop(family, b"".join(words))


def _reached(address: str) -> str:
    told = ipaddress.ip_address(address)
    return _LOOPBACKS[told.version == 6] if told.is_unspecified else address
