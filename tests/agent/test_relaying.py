"""A program and its connection: the order of bytes, the end of each direction, and slow clients. Programs are real."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from backendai.agent.guest import shells
from backendai.base.wire.guest_frames import EXIT, INPUT, STDOUT, frame
from tests.patience import patient

pytestmark = pytest.mark.asyncio
_TERMINAL = {"rows": 24, "cols": 80}
_ROOM = 4096  # of the sockets: what a client does not read soon waits in the guest
_FILL = """
import os, pathlib, select, sys
os.set_blocking(1, False)
sent = 0
while select.select([], [1], [], 0.5)[1]:
    sent += os.write(1, b"x" * 100)
pathlib.Path(sys.argv[1]).write_text(str(sent))
"""


async def read(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the next frame."""
    head = await reader.readexactly(5)
    return head[0], await reader.readexactly(int.from_bytes(head[1:], "big"))


class Client:
    """The other side of a program's connection. Call ``run`` to start the program."""

    def __init__(self) -> None:
        self._near, far = socket.socketpair()
        for one in (self._near, far):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM)
        self._far = far
        self.faults: list[dict[str, Any]] = []

    async def connect(self) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: self.faults.append(told))
        self._ends = await asyncio.open_connection(sock=self._near)
        self.reader, self.writer = await asyncio.open_connection(sock=self._far, limit=_ROOM)

    def run(self, command: str, **order: Any) -> None:
        self.serving = asyncio.create_task(self._serve({"op": "exec", "command": command, **order}))

    async def _serve(self, order: dict[str, Any]) -> None:
        reader, writer = self._ends
        try:
            await shells.run(order, reader, writer)
        finally:
            writer.close()

    async def begin(self) -> None:
        assert await self.reader.readline() == b"{}\n"

    async def output(self) -> bytes:
        """Return the output before the exit status."""
        said = b""
        while (heard := await read(self.reader))[0] != EXIT:
            assert heard[0] == STDOUT
            said += heard[1]
        return said

    async def close(self) -> None:
        self.writer.close()
        async with asyncio.timeout(patient(20)):
            await self.serving


@pytest.fixture
def client() -> Client:
    return Client()


async def test_a_client_that_ends_before_its_program_starts_has_left_after_its_last_frame(
    client: Client, tmp_path: Path
) -> None:
    await client.connect()
    client.writer.write(frame(INPUT, b"typed\n"))
    client.writer.write_eof()
    reader, _ = client._ends
    while not reader._eof:  # type: ignore[attr-defined]
        await asyncio.sleep(0.01)
    client.run(f"cat > {tmp_path}/heard & exec sleep 600")
    async with asyncio.timeout(patient(20)):
        await client.serving
    await client.close()


async def test_the_exit_status_comes_after_all_output_though_the_client_is_slow(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program fills the connection and the terminal, and ends."""
    monkeypatch.setattr(shells, "_LAST", (0.2, 128 * 1024))
    (tmp_path / "fill.py").write_text(_FILL)
    sent = tmp_path / "sent"
    await client.connect()
    client.run(f"exec {sys.executable} {tmp_path}/fill.py {sent}", pty=_TERMINAL)
    async with asyncio.timeout(60):
        while not sent.exists() or not sent.read_text():
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.6)  # without a fault nothing happens meanwhile
    await client.begin()
    async with asyncio.timeout(patient(20)):
        assert len(await client.output()) == int(sent.read_text())
    await client.close()


async def test_nothing_follows_the_exit_status_though_others_write_to_the_terminal(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shells, "_LAST", (0.2, 128 * 1024))
    await client.connect()
    client.run("trap '' HUP; (while echo noise; do sleep 0.01; done) & echo last", pty=_TERMINAL)
    await client.begin()
    async with asyncio.timeout(patient(20)):
        assert b"last\r\n" in await client.output()
    await asyncio.sleep(0.3)  # the guest waits until its client has left
    client.writer.write_eof()
    async with asyncio.timeout(patient(20)):
        assert await client.reader.read() == b""
    await client.close()


async def test_others_that_never_stop_writing_do_not_hold_up_the_exit_status(client: Client) -> None:
    """The client reads 160 KiB a second: the guest waits for it most of the time."""
    await client.connect()
    client.run("trap '' HUP; yes & echo last", pty=_TERMINAL)
    await client.begin()
    async with asyncio.timeout(patient(10)):
        while (await read(client.reader))[0] != EXIT:
            await asyncio.sleep(0.01)
    await client.close()


async def test_a_client_that_reads_late_is_no_fault_of_the_guest(client: Client) -> None:
    """The connection is given back while the client is too slow, and the client catches up afterwards."""
    await client.connect()
    client.run("yes")
    await client.begin()
    _, writer = client._ends
    while writer.transport.get_write_buffer_size() < 64 * 1024:
        await asyncio.sleep(0.01)
    client.writer.write_eof()
    async with asyncio.timeout(patient(20)):
        await client.serving
        while await client.reader.read(65536):
            pass
    await client.close()
    assert client.faults == []
