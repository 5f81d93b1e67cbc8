"""The Ethernet of a session with virtual machines on one agent: their supervisors exchange frames.

Each supervisor has a socket in the session's folder, named by its kernel's rank. No frame reaches this machine's
networks. Frames with a forged sender are dropped. Only the standard library, as the supervisor runs alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path

from backendai.agent.guest.link.sockets import connect, short_address

_PREFIX = bytes.fromhex("0262616900")  # locally administered; the last byte is the rank
_ADDRESS, _HEAD = 6, 14  # bytes
_LARGEST = 65536
_AT_ONCE = 64  # frames read from one side at a time
_MOST_WAITING = 1024 * 1024  # waiting bytes for a slow receiver; a guest may send frames of 64 KiB
Connect = Callable[[], socket.socket]


def hardware_address(rank: int) -> str:
    """Return a kernel's Ethernet address in QEMU's format."""
    return (_PREFIX + bytes([rank])).hex(":")


class SwitchLine:
    """Sends frames to one socket in order. Drops frames while too many bytes wait or the other side is missing."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._socket: socket.socket | None = None
        self._waiting: deque[bytes] = deque()
        self._size = 0  # of what waits, in memory: small frames cost more than their bytes

    def send(self, frame: bytes) -> None:
        """Send the frame, now or when the other side reads."""
        if self._waiting:
            if self._size + sys.getsizeof(frame) <= _MOST_WAITING:
                self._keep(frame)
        elif not self._sends(frame):
            self._keep(frame)
            assert self._socket is not None
            asyncio.get_running_loop().add_writer(self._socket, self._go_on)

    def close(self) -> None:
        """Drop waiting frames; the next frame opens a new connection."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_writer(self._socket)
            self._socket.close()
        self._socket = None
        self._waiting.clear()
        self._size = 0

    def _keep(self, frame: bytes) -> None:
        self._waiting.append(frame)
        self._size += sys.getsizeof(frame)

    def _sends(self, frame: bytes) -> bool:
        """Return whether the frame was sent or dropped; False if the other side has to read first."""
        try:
            if self._socket is None:
                self._socket = self._connect()
            self._socket.send(frame)
        except BlockingIOError:
            return False
        except OSError:  # the other virtual machine has ended or not started
            self.close()
        return True

    def _go_on(self) -> None:
        while self._waiting:
            if not self._sends(self._waiting[0]):
                return
            if self._waiting:  # else ``_sends`` has closed the connection
                self._size -= sys.getsizeof(self._waiting.popleft())
        if self._socket is not None:
            asyncio.get_running_loop().remove_writer(self._socket)


class Switch:
    """The switch port of a kernel's virtual machine. ``folder``: of its session, which has ``size`` kernels."""

    def __init__(self, folder: Path, rank: int, size: int) -> None:
        self._own, self._path = _PREFIX + bytes([rank]), folder / str(rank)
        others = (number for number in range(size) if number != rank)
        self._others = {_PREFIX + bytes([number]): SwitchLine(_connector(folder / str(number))) for number in others}

    def plug(self) -> socket.socket:
        """Return the virtual machine's end of a socket pair, and forward frames from now on. Raises OSError."""
        self._cable, machine = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._cable.setblocking(False)
        self._to_machine = SwitchLine(lambda: self._cable.dup())
        self._arrivals = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._path.unlink(missing_ok=True)  # left by an earlier start of this kernel
        with short_address(self._path) as address:
            self._arrivals.bind(address)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._cable, self._read, self._cable, self._pass_on)
        loop.add_reader(self._arrivals, self._read, self._arrivals, self._to_machine.send)
        return machine

    def close(self) -> None:
        """Stop forwarding."""
        for line in (self._to_machine, *self._others.values()):
            line.close()
        for one in (self._cable, self._arrivals):
            asyncio.get_running_loop().remove_reader(one)
            one.close()
        self._path.unlink(missing_ok=True)

    def _read(self, source: socket.socket, take: Callable[[bytes], None]) -> None:
        with contextlib.suppress(OSError):
            for _ in range(_AT_ONCE):
                take(source.recv(_LARGEST))

    def _pass_on(self, frame: bytes) -> None:
        """Forward a frame to its destination; to all for a multicast address."""
        if len(frame) < _HEAD or frame[_ADDRESS : 2 * _ADDRESS] != self._own:
            return
        wanted = frame[:_ADDRESS]
        for line in self._others.values() if wanted[0] & 1 else filter(None, [self._others.get(wanted)]):
            line.send(frame)


def _connector(path: Path) -> Connect:
    return lambda: connect(path, 0.0, socket.SOCK_DGRAM)
