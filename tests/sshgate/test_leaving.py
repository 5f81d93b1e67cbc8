"""Clients that leave while what they have sent is not taken: nothing of theirs stays behind in the session."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from backendai.agent.guest import shells
from backendai.base.wire.guest_frames import INPUT, frame
from backendai.domain.compute.models import ComputeSession
from tests.patience import patient
from tests.sshgate.stage import Stage, connect

pytestmark = pytest.mark.django_db(transaction=True)
_SECONDS = 20.0
# How much is sent, in KiB: it fills the program's input, all buffers on the way but the last ones, and all of them.
_AMOUNTS = (60, 450, 8192)
_PORT = """
import select, socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
connection = server.accept()[0]
looking = select.poll()
looking.register(connection.fileno(), select.POLLRDHUP)
looking.poll()
print("gone", flush=True)
"""


async def fill(writer: Any, size: int) -> None:
    """Send as much as is taken, up to this size."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1):
            for _ in range(0, size, 4096):
                writer.write(b"x" * 4096)
                await writer.drain()


def test_programs_end_when_their_client_leaves_though_they_take_no_input(
    here: Stage, key: Path, session: ComputeSession
) -> None:
    async def leave_behind(number: int) -> None:
        async with connect(here, key) as connection:
            process = await connection.create_process(f"echo on; exec sleep 900{number}", encoding=None)
            assert await process.stdout.readline() == b"on\n"
            await fill(process.stdin, _AMOUNTS[number] * 1024)
            connection.abort()

    async def walk() -> None:
        async with connect(here, key) as watcher:
            await asyncio.gather(*(leave_behind(number) for number in range(len(_AMOUNTS))))
            until = time.monotonic() + patient(_SECONDS)
            while left := (await watcher.run("pgrep -afx 'sleep 900.'")).stdout:
                assert time.monotonic() < until, left
                await asyncio.sleep(0.2)

    asyncio.run(walk())


def test_ports_are_hung_up_when_their_client_leaves_though_they_take_nothing(
    here: Stage, key: Path, session: ComputeSession
) -> None:
    async def walk(size: int) -> None:
        async with connect(here, key) as watcher, connect(here, key) as connection:
            server = await watcher.create_process(f"exec python3 -c '{_PORT}'")
            port = int(await server.stdout.readline())
            _, writer = await connection.open_connection("localhost", port)
            await fill(writer, size * 1024)
            connection.abort()
            async with asyncio.timeout(patient(_SECONDS)):
                assert await server.stdout.readline() == "gone\n"

    async def walk_all() -> None:
        await asyncio.gather(*map(walk, _AMOUNTS))

    asyncio.run(walk_all())


def test_a_port_that_has_said_its_end_still_gets_all_that_is_sent(
    here: Stage, key: Path, session: ComputeSession
) -> None:
    """The port speaks first and is slow to read; the client has ended too, and stays."""
    server = """
import socket, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
connection = server.accept()[0]
connection.sendall(b"enough")
connection.shutdown(socket.SHUT_WR)
time.sleep(1)
print(sum(len(piece) for piece in iter(lambda: connection.recv(65536), b"")), flush=True)
"""

    async def walk() -> None:
        async with connect(here, key) as connection:
            process = await connection.create_process(f"exec python3 -c '{server}'")
            port = int(await process.stdout.readline())
            reader, writer = await connection.open_connection("localhost", port)
            writer.write(b"x" * 4_000_000)
            writer.write_eof()
            assert await reader.read() == b"enough"
            async with asyncio.timeout(patient(_SECONDS)):
                assert int(await process.stdout.readline()) == 4_000_000

    asyncio.run(walk())


async def _short_command() -> tuple[bool, bytes, float]:
    """Run a program that ends at once; returns whether its guest was still there then, its last words, and how long it
    stayed after the other side had left."""
    near, far = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=near)
    far_reader, far_writer = await asyncio.open_connection(sock=far)
    guest = asyncio.create_task(shells.run({"op": "exec", "command": "true"}, reader, writer))
    assert await far_reader.readline() == b"{}\n"
    await far_reader.readexactly(1)  # of the frame with the exit
    await asyncio.sleep(0.3)
    stays = not guest.done()
    far_writer.write(frame(INPUT, b""))
    await far_writer.drain()
    rest = await far_reader.readuntil(b"}")
    left_at = time.monotonic()
    far_writer.close()
    await guest
    writer.close()
    return stays, rest, time.monotonic() - left_at


def test_the_exit_of_a_short_command_is_not_lost_with_a_late_end_of_its_input() -> None:
    stays, rest, seconds = asyncio.run(_short_command())
    assert stays and rest.endswith(b'{"code": 0}') and seconds < 3
