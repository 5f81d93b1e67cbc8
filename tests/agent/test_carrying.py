"""Many connections over one stream of bytes: nothing is lost, and a slow one holds up no other."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from backendai.agent.backends.guest_host import PROGRAM, GuestPlace, program
from backendai.agent.gateway.guest_links import GuestLinks
from backendai.agent.guest.link.carrying import WINDOW, Carrier
from backendai.agent.guest.link.sockets import short_address
from tests.patience import patient

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Pair:
    """Two ends. What one end opens, the other connects to a server of ``serve``."""

    def __init__(self, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
        self._serve, self._tasks = serve, list[asyncio.Future[None]]()
        self.inside = Carrier(self._to_outside)
        self.outside = Carrier(self._to_inside, connect=self._connect)

    async def _to_outside(self, frame: bytes) -> None:
        for start in range(0, len(frame), 1000):  # streams cut where they like
            self.outside.take(frame[start : start + 1000])

    async def _to_inside(self, frame: bytes) -> None:
        self.inside.take(frame)

    async def _connect(self) -> Stream:
        await asyncio.sleep(0.01)  # what comes meanwhile must not be lost
        near, far = socket.socketpair()
        self._keep(self._serve(*await asyncio.open_connection(sock=far)))
        return await asyncio.open_connection(sock=near)

    def _keep(self, work: Awaitable[None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    async def open(self) -> Stream:
        near, far = socket.socketpair()
        self._keep(self.inside.carry(*await asyncio.open_connection(sock=far)))
        return await asyncio.open_connection(sock=near)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say how it begins when it has ended, and all of it."""
    data = await reader.read()
    writer.write(b"heard " + data)
    writer.write_eof()
    await writer.drain()
    writer.close()


async def said(pair: Pair, data: bytes) -> bytes:
    reader, writer = await pair.open()
    writer.write(data)
    writer.write_eof()
    heard = await asyncio.wait_for(reader.read(), patient(20))
    writer.close()
    return heard


def test_connections_are_whole_however_much_they_carry_and_leave_nothing() -> None:
    async def walk() -> None:
        pair, large = Pair(answer), os.urandom(5 * WINDOW)
        heard = await asyncio.gather(said(pair, large), said(pair, b"a"), said(pair, b""))
        assert heard == [b"heard " + large, b"heard a", b"heard "]
        async with asyncio.timeout(patient(10)):
            while not (pair.inside.is_idle and pair.outside.is_idle):
                await asyncio.sleep(0.01)

    asyncio.run(walk())


def test_one_that_nobody_reads_holds_up_no_other() -> None:
    async def stare(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await (stare if await reader.read(1) == b"!" else answer)(reader, writer)

    async def walk() -> None:
        pair = Pair(serve)
        _, writer = await pair.open()
        writer.write(b"!" + bytes(20 * WINDOW))
        assert await said(pair, b"-now") == b"heard now"

    asyncio.run(walk())


@pytest.mark.parametrize("head", [(1, 9, 0), (1, 1, WINDOW + 1), (1, 4, 3)])
def test_what_is_no_frame_is_refused(head: tuple[int, int, int]) -> None:
    async def walk() -> None:
        with pytest.raises(ValueError, match="frame"):
            Pair(answer).outside.take(struct.pack(">IBI", *head))

    asyncio.run(walk())


def test_a_connection_that_sends_more_than_it_may_is_refused() -> None:
    async def walk() -> None:
        outside = Pair(answer).outside
        piece = (1).to_bytes(4, "big") + b"\x01" + WINDOW.to_bytes(4, "big") + bytes(WINDOW)
        outside.take((1).to_bytes(4, "big") + bytes(5) + piece)
        with pytest.raises(ValueError, match="granted"):
            outside.take(piece)
        outside.close()

    asyncio.run(walk())


@pytest.mark.parametrize(("kinds", "is_refused"), [([1], True), ([2, 1], True), ([2] * 50, False), ([3] * 50, False)])
def test_frames_without_content_fill_no_memory(kinds: list[int], is_refused: bool) -> None:
    async def walk() -> None:
        outside = Pair(answer).outside
        outside.take(struct.pack(">IBI", 1, 0, 0))
        frames = b"".join(struct.pack(">IBI", 1, kind, 0) for kind in kinds)
        with pytest.raises(ValueError, match="granted") if is_refused else contextlib.nullcontext():
            outside.take(frames)
        assert outside._carried[1].came.qsize() <= 2
        outside.close()

    asyncio.run(walk())


class Carried(GuestPlace):
    """A guest behind one process, whose standard streams are all there is between it and here."""

    def __init__(self, here: Path, inside: Path) -> None:
        self._here, self._inside = here, inside

    def folder(self, kernel_id: UUID) -> Path:
        return self._here

    def was_launched(self, kernel_id: UUID) -> bool:
        return False

    def launch(self, kernel_id: UUID) -> None: ...

    async def run(self) -> None:
        (self._inside / PROGRAM).write_bytes(program())
        words = [sys.executable, "-I", "-S", str(self._inside / PROGRAM), "carry", str(self._inside)]
        environ = os.environ | {"HOME": str(self._inside), "TMPDIR": str(self._inside)}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, env=environ)
        assert process.stdin is not None and process.stdout is not None
        into = process.stdin

        async def send(frame: bytes) -> None:
            into.write(frame)

        async def connect() -> Stream:
            with short_address(self._here / "agent.sock") as address:
                return await asyncio.open_unix_connection(address)

        carrier = Carrier(send, connect=connect)
        try:
            while data := await process.stdout.read(65536):
                carrier.take(data)
        finally:
            into.close()
            await process.wait()


def test_a_guest_answers_through_one_stream_and_the_program_ends_with_it(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)  # longer than the address of a socket
    here, inside = deep / "here", deep / "inside"
    here.mkdir(parents=True)
    inside.mkdir()

    async def walk() -> None:
        place = Carried(here, inside)
        running, links = asyncio.create_task(place.run()), GuestLinks(place)
        for _ in range(3):
            reader, writer = await links.open(_KERNEL)
            writer.write(json.dumps({"op": "list", "path": "", "limit": 5}).encode() + b"\n")
            assert "entries" in json.loads(await asyncio.wait_for(reader.read(), patient(20)))
            writer.close()
        links.close()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        (guest,) = inside.glob(".backendai-runs/*/lock")
        os.kill(int(guest.read_text()), signal.SIGKILL)

    asyncio.run(walk())


_KERNEL = uuid4()
