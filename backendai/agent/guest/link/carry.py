"""Connects the guest with its agent from a container without a shared folder.

The guest connects to a socket in the container. Its connections are multiplexed over the standard streams of a command
that the agent runs there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from backendai.agent.guest.link.carrying import Carrier
from backendai.agent.guest.link.sockets import SOCKET, listen

_PID = "carrier.pid"
_IDLE_SECONDS = 60.0
_PIECE = 65536


def carry(folder: Path) -> None:
    """Forward connections until the agent disconnects, or no guest has been connected for a minute."""
    _take_over(folder)
    asyncio.run(_main(folder))


def _take_over(folder: Path) -> None:
    """Kill the process of an earlier agent: it may not notice its stream's end."""
    place = folder / _PID
    with contextlib.suppress(OSError, ValueError):
        earlier = int(place.read_text())
        if b"carry" in Path(f"/proc/{earlier}/cmdline").read_bytes():
            os.kill(earlier, signal.SIGKILL)
    place.write_text(str(os.getpid()))


async def _main(folder: Path) -> None:
    loop = asyncio.get_running_loop()
    incoming = asyncio.StreamReader(limit=_PIECE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(incoming), sys.stdin.buffer)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout.buffer)
    outgoing = asyncio.StreamWriter(transport, protocol, None, loop)
    sending = asyncio.Lock()

    async def send(frame: bytes) -> None:
        async with sending:
            outgoing.write(frame)
            await outgoing.drain()

    carrier = Carrier(send, on_start=lambda: _start_guest(folder))
    with contextlib.suppress(FileNotFoundError):
        (folder / SOCKET).unlink()
    server = await asyncio.start_unix_server(carrier.carry, sock=listen(folder / SOCKET))
    _start_guest(folder)
    leaving = asyncio.ensure_future(_until_idle(carrier))
    hearing = asyncio.ensure_future(_hear(carrier, incoming))
    await asyncio.wait([leaving, hearing], return_when=asyncio.FIRST_COMPLETED)
    server.close()
    os._exit(0)  # other tasks may wait for the agent for ever


async def _hear(carrier: Carrier, incoming: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError, ValueError):
        while data := await incoming.read(_PIECE):
            carrier.take(data)


async def _until_idle(carrier: Carrier) -> None:
    looks = 0
    while looks < 2:
        await asyncio.sleep(_IDLE_SECONDS / 2)
        looks = looks + 1 if carrier.is_idle else 0


def _start_guest(folder: Path) -> None:
    """Start the guest. If one runs already, the new one exits."""
    words = [sys.executable, "-I", "-S", sys.argv[0], "serve", str(folder)]
    nothing = subprocess.DEVNULL
    subprocess.Popen(words, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
