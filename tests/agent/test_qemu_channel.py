"""The channel of virtual machines without a machine: frames, windows, ends; the guest's side is played by the test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backendai.agent.backends.qemu.channel.frames import (
    LARGEST,
    LOG,
    WINDOW,
    BadFrame,
    Frame,
    FrameDecoder,
    FrameKind,
    credit,
    end,
    opening,
    program_words,
)
from backendai.agent.backends.qemu.channel.mux import Mux, StreamRefused
from backendai.agent.guest.link.sockets import listen
from tests.patience import patient


class Guest:
    """The other end of a channel."""

    def __init__(self, channel: socket.socket) -> None:
        channel.setblocking(False)
        self._channel, self._decoder = channel, FrameDecoder()
        self._waiting: list[Frame] = []

    async def next(self, *kinds: FrameKind) -> Frame:
        """Return the next frame of these kinds; credit is left out unless it is asked for."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(patient(10)):
            while True:
                while self._waiting:
                    frame = self._waiting.pop(0)
                    if frame.kind in kinds or (not kinds and frame.kind != FrameKind.CREDIT):
                        return frame
                self._waiting += self._decoder.feed(await loop.sock_recv(self._channel, 65536))

    async def send(self, *frames: Frame) -> None:
        data = b"".join(frame.encoded() for frame in frames)
        await asyncio.get_running_loop().sock_sendall(self._channel, data)


@contextlib.asynccontextmanager
async def machine(
    log: list[bytes], words: list[str], guest: Path = Path("/nowhere/x")
) -> AsyncIterator[tuple[Mux, Guest]]:
    ours, theirs = socket.socketpair()
    mux = Mux(log.append, words.append, guest)
    running = asyncio.create_task(mux.run(ours))
    try:
        yield mux, Guest(theirs)
    finally:
        theirs.close()
        await asyncio.wait_for(running, patient(5))


async def connection() -> tuple[asyncio.StreamReader, asyncio.StreamWriter, socket.socket]:
    near, far = socket.socketpair()
    near.setblocking(False)
    return *await asyncio.open_connection(sock=far), near


def test_frames_arrive_whole_however_they_are_cut() -> None:
    frames = [
        Frame(FrameKind.SAY, 0, b"started"),
        Frame(FrameKind.DATA, 7, b"x" * LARGEST),
        Frame(FrameKind.OPENED, 2**32 - 1),
    ]
    data = b"".join(frame.encoded() for frame in frames)
    for step in (1, 3, 4096, len(data)):
        decoder = FrameDecoder()
        assert [one for at in range(0, len(data), step) for one in decoder.feed(data[at : at + step])] == frames


def test_a_guest_that_breaks_the_protocol_is_noticed() -> None:
    with pytest.raises(BadFrame):
        list(FrameDecoder().feed(b"\x02\x00\xff\xff\x01\x00\x00\x00"))
    with pytest.raises(BadFrame):
        _ = Frame(FrameKind.CREDIT, 2, b"abc").credit
    with pytest.raises(BadFrame):
        opening(2, "x", ["a\0b"])
    with pytest.raises(BadFrame):
        opening(2, "x", ["a" * LARGEST])


def test_words_of_a_program_name_folder_variables_and_command() -> None:
    assert program_words(["sh", "-c", "x"], {"A": "1", "B": "2=3"}, "/tmp") == [
        "/tmp", "2", "A=1", "B=2=3", "sh", "-c", "x",
    ]  # fmt: skip


@pytest.mark.asyncio
async def test_what_the_guest_says_and_logs_is_heard_and_credited() -> None:
    log: list[bytes] = []
    words: list[str] = []
    async with machine(log, words) as (_, guest):
        await guest.send(Frame(FrameKind.SAY, 0, b"started"), Frame(FrameKind.DATA, LOG, b"line\n"))
        given = await guest.next(FrameKind.CREDIT)
        assert (given.stream, given.credit) == (LOG, 5)
    assert (log, words) == ([b"line\n"], ["started"])


@pytest.mark.asyncio
async def test_a_stream_carries_both_ways_and_ends_with_both_sides() -> None:
    async with machine([], []) as (mux, guest):
        opened = asyncio.create_task(mux.open("t", ["8000"]))
        asked = await guest.next()
        assert (asked.kind, asked.body) == (FrameKind.OPEN, b"t8000\0")
        await guest.send(Frame(FrameKind.OPENED, asked.stream))
        reader, writer, near = await connection()
        joined = asyncio.create_task(mux.join(await opened, (reader, writer)))
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(near, b"question")
        near.shutdown(socket.SHUT_WR)
        assert (await guest.next()).body == b"question"
        assert (await guest.next()).kind == FrameKind.END_OF_INPUT
        await guest.send(Frame(FrameKind.DATA, asked.stream, b"answer"), Frame(FrameKind.END_OF_INPUT, asked.stream))
        await guest.send(end(asked.stream))
        assert await loop.sock_recv(near, 100) == b"answer"
        assert await loop.sock_recv(near, 100) == b""
        await asyncio.wait_for(joined, patient(5))


@pytest.mark.asyncio
async def test_a_port_where_nobody_listens_is_refused_with_its_number() -> None:
    async with machine([], []) as (mux, guest):
        opened = asyncio.create_task(mux.open("t", ["9"]))
        asked = await guest.next()
        await guest.send(end(asked.stream, 111))
        with pytest.raises(StreamRefused) as refused:
            await opened
        assert refused.value.code == 111


@pytest.mark.asyncio
async def test_a_sender_waits_for_credit_and_other_streams_go_on() -> None:
    async with machine([], []) as (mux, guest):
        nears, tasks = [], []
        for letter in ("t", "t"):
            opened = asyncio.create_task(mux.open(letter, ["1"]))
            asked = await guest.next()
            await guest.send(Frame(FrameKind.OPENED, asked.stream))
            reader, writer, near = await connection()
            nears.append(near)
            tasks.append(asyncio.create_task(mux.join(await opened, (reader, writer))))
        flooding = asyncio.create_task(asyncio.get_running_loop().sock_sendall(nears[0], b"x" * 4 * WINDOW))
        got = 0
        while got < WINDOW:
            got += len((await guest.next(FrameKind.DATA)).body)
        assert got == WINDOW, "not more than the window"
        await asyncio.get_running_loop().sock_sendall(nears[1], b"hello")
        passed = await guest.next(FrameKind.DATA)
        assert (passed.stream, passed.body) == (4, b"hello")
        await guest.send(credit(2, 10))
        assert (await guest.next(FrameKind.DATA)).body == b"x" * 10
        flooding.cancel()
        for near in nears:
            near.close()
        assert {(await guest.next(FrameKind.END)).stream, (await guest.next(FrameKind.END)).stream} == {2, 4}
        await asyncio.wait_for(asyncio.gather(*tasks), patient(10))


@pytest.mark.asyncio
async def test_a_terminal_is_hung_up_when_its_agent_is_gone() -> None:
    async with machine([], []) as (mux, guest):
        opened = asyncio.create_task(mux.open("p", ["24", "80", "", "0", "sh"]))
        asked = await guest.next()
        await guest.send(Frame(FrameKind.OPENED, asked.stream))
        reader, writer, near = await connection()
        joined = asyncio.create_task(mux.join(await opened, (reader, writer)))
        near.close()
        assert (await guest.next(FrameKind.END)).stream == asked.stream
        await asyncio.wait_for(joined, patient(5))


@pytest.mark.asyncio
async def test_calls_of_the_guest_agent_reach_the_socket_of_the_agent(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"heard " + await reader.readline())
        writer.close()

    server = await asyncio.start_unix_server(answer, sock=listen(tmp_path / "agent.sock"))
    async with machine([], [], tmp_path / "agent.sock") as (_, guest):
        await guest.send(Frame(FrameKind.OPEN, 3, b"u"), Frame(FrameKind.DATA, 3, b"hello\n"))
        assert (await guest.next(FrameKind.DATA)).body == b"heard hello\n"
        server.close()
        await guest.send(Frame(FrameKind.OPEN, 5, b"u"))
        (tmp_path / "agent.sock").unlink(missing_ok=True)
        await guest.send(Frame(FrameKind.OPEN, 7, b"u"))
        refused = await guest.next(FrameKind.END)
        while refused.stream != 7:
            refused = await guest.next(FrameKind.END)
        assert refused.code == 111


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "frames",
    [
        [Frame(FrameKind.DATA, 2, b"x" * LARGEST)] * (WINDOW // LARGEST + 1),
        [Frame(FrameKind.OPEN, 4, b"u")],
        [Frame(FrameKind.OPEN, 3, b"u"), Frame(FrameKind.OPEN, 3, b"u")],
        [Frame(FrameKind.OPEN, number, b"u") for number in range(3, 1100, 2)],
        [Frame(FrameKind.CREDIT, 2, b"odd")],
        [Frame(FrameKind.DATA, 2, b"")],
    ],
    ids=["more than its window", "a number of ours", "a call twice", "calls without end", "no number", "no data"],
)
async def test_a_guest_that_does_not_keep_to_the_protocol_is_let_go(frames: list[Frame]) -> None:
    ours, theirs = socket.socketpair()
    mux = Mux(lambda data: None, lambda text: None, Path("/nowhere/x"))
    running = asyncio.create_task(mux.run(ours))
    guest = Guest(theirs)
    opened = asyncio.create_task(mux.open("x", ["", "0", "yes"]))
    await guest.send(Frame(FrameKind.OPENED, (await guest.next()).stream))
    stream = await opened
    with contextlib.suppress(OSError):
        await guest.send(*frames)
    await asyncio.wait_for(running, patient(5))
    assert stream.ended.is_set()
    theirs.close()
