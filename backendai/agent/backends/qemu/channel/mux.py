"""The supervisor's end of the channel: streams to and from the guest, each with its own window."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import select
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

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
    size,
)
from backendai.agent.guest.link.sockets import short_address

_OPEN_SECONDS = 30.0
_MOST_CALLS = 512  # the limit of the guest's first process
_MOST_TO_SEND = 256 * 1024
_MOST_UNREAD = 4 * _MOST_TO_SEND  # bytes of answers that the guest has not read
_LOOK = 2.0  # seconds between checks of a connection whose input has ended
_REFUSED, _GONE = errno.ECONNREFUSED, errno.EPIPE
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class StreamRefused(Exception):
    """The guest refuses to open the stream; ``code``: an errno, or a program's exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"refused: {code}")
        self.code = code


class MuxStream:
    """One stream that the guest serves."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.answered = asyncio.Event()
        self.is_open = False
        self.credited = asyncio.Event()
        self.credit, self.passed = WINDOW, 0
        self.unread = 0  # bytes from the guest that are not forwarded yet
        self.inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.code: int | None = None
        self.ended = asyncio.Event()
        self.has_ended_input = False


class Mux:
    """All streams of a virtual machine. ``log`` receives the main process's output, ``hear`` the guest's messages.
    Connections of its guest agent go to the socket ``guest``."""

    def __init__(self, log: Callable[[bytes], None], hear: Callable[[str], None], guest: Path) -> None:
        self._log, self._hear, self._guest = log, hear, guest
        self._streams: dict[int, MuxStream] = {}
        self._next = 2
        self._unsent = bytearray()
        self._can_send = asyncio.Event()
        self._has_sent = asyncio.Event()
        self._has_sent.set()
        self._calls: set[asyncio.Task[None]] = set()

    async def run(self, channel: socket.socket) -> None:
        """Serve the channel until the virtual machine closes it; closes it after a violation of the protocol."""
        channel.setblocking(False)
        loop, decoder = asyncio.get_running_loop(), FrameDecoder()
        sending = asyncio.create_task(self._send_all(channel))
        try:
            while data := await loop.sock_recv(channel, 65536):
                for frame in decoder.feed(data):
                    self._take(frame)
        except (OSError, ValueError):
            pass
        finally:
            sending.cancel()
            for stream in list(self._streams.values()):
                self._finish(stream, None)
            channel.close()

    def say(self, text: str) -> None:
        """Send a message to the guest's first process."""
        self._send(Frame(FrameKind.SAY, 0, text.encode()))

    def resize(self, number: int, rows: int, columns: int) -> None:
        """Set an open terminal's size."""
        if number in self._streams:
            self._send(size(number, rows, columns))

    def stream(self, number: int) -> MuxStream | None:
        """Return an open stream; None if there is none."""
        return self._streams.get(number)

    async def open(self, letter: str, words: Sequence[str]) -> MuxStream:
        """Open and return a stream. Raises Refused, BadFrame, and TimeoutError if the guest does not answer."""
        number, self._next = self._next, self._next + 2
        frame = opening(number, letter, words)
        stream = self._streams[number] = MuxStream(number)
        self._send(frame)
        try:
            await asyncio.wait_for(stream.answered.wait(), _OPEN_SECONDS)
        except TimeoutError:
            self.close(stream)
            raise
        if not stream.is_open:
            raise StreamRefused(_GONE if stream.code is None else stream.code)
        return stream

    def close(self, stream: MuxStream) -> None:
        """End a stream from this side."""
        if self._streams.pop(stream.number, None) is not None:
            self._send(end(stream.number))
            self._finish(stream, None)

    async def join(self, stream: MuxStream, connection: Connection) -> None:
        """Copy bytes both ways until stream or connection ends; closes both."""
        reader, writer = connection
        inwards = asyncio.create_task(self._inwards(stream, reader))
        outwards = asyncio.create_task(self._outwards(stream, writer))
        try:
            await asyncio.wait([inwards, outwards], timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)
            passed = -1
            while not outwards.done():  # after the input's end the answer may still arrive
                if _is_gone(writer) and (inwards.done() or passed == stream.passed):
                    break
                passed = stream.passed
                waits = [outwards] if inwards.done() else [outwards, inwards]
                await asyncio.wait(waits, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)
        finally:
            inwards.cancel()
            outwards.cancel()
            self.close(stream)
            writer.close()

    async def _inwards(self, stream: MuxStream, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(LARGEST):
                while data:
                    while not stream.credit:
                        stream.credited.clear()
                        await stream.credited.wait()
                    piece, data = data[: stream.credit], data[stream.credit :]
                    stream.credit -= len(piece)
                    stream.passed += len(piece)
                    await self._has_sent.wait()
                    self._send(Frame(FrameKind.DATA, stream.number, piece))
        self._send(Frame(FrameKind.END_OF_INPUT, stream.number))

    async def _outwards(self, stream: MuxStream, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while (piece := await stream.inbox.get()) is not None:
                if not piece:  # the guest has closed its side; the other direction may stay open
                    with contextlib.suppress(OSError, NotImplementedError):
                        writer.write_eof()
                    continue
                writer.write(piece)
                await writer.drain()
                stream.unread -= len(piece)
                self._send(credit(stream.number, len(piece)))

    def _take(self, frame: Frame) -> None:
        if frame.kind == FrameKind.SAY:
            self._hear(frame.text)
            return
        if frame.kind == FrameKind.OPEN:
            if frame.stream in self._streams or frame.stream % 2 == 0 or len(self._calls) >= _MOST_CALLS:
                raise BadFrame(f"a call on stream {frame.stream}")
            stream = self._streams[frame.stream] = MuxStream(frame.stream)  # registered at once, as its data follows
            call = asyncio.create_task(self._call(stream))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
            return
        if frame.kind == FrameKind.DATA and not frame.body:
            raise BadFrame("no data")
        if frame.stream == LOG:
            self._take_log(frame)
            return
        if frame.stream not in self._streams:
            return
        stream = self._streams[frame.stream]
        if frame.kind == FrameKind.OPENED:
            stream.is_open = True
            stream.answered.set()
        elif frame.kind == FrameKind.DATA:
            stream.unread += len(frame.body)
            if stream.unread > WINDOW:
                raise BadFrame("more than was allowed")
            stream.inbox.put_nowait(frame.body)
        elif frame.kind == FrameKind.END_OF_INPUT and not stream.has_ended_input:
            stream.has_ended_input = True
            stream.inbox.put_nowait(b"")
        elif frame.kind == FrameKind.CREDIT:
            stream.credit += frame.credit
            stream.credited.set()
        elif frame.kind == FrameKind.END:
            del self._streams[frame.stream]
            self._finish(stream, frame.code)

    def _take_log(self, frame: Frame) -> None:
        if frame.kind != FrameKind.DATA:
            return
        if len(self._unsent) > _MOST_UNREAD:  # each piece of the log is acknowledged
            raise BadFrame("answers that it does not read")
        self._log(frame.body)
        self._send(credit(LOG, len(frame.body)))

    def _finish(self, stream: MuxStream, code: int | None) -> None:
        stream.code = code
        stream.answered.set()
        stream.ended.set()
        stream.inbox.put_nowait(None)

    async def _call(self, stream: MuxStream) -> None:
        """Connect a stream of the guest agent to the agent's socket."""
        try:
            connection = await _dialled(self._guest)
        except OSError:
            self._streams.pop(stream.number, None)
            self._send(end(stream.number, _REFUSED))
            return
        await self.join(stream, connection)

    def _send(self, frame: Frame) -> None:
        self._unsent += frame.encoded()
        self._can_send.set()
        if len(self._unsent) > _MOST_TO_SEND:
            self._has_sent.clear()

    async def _send_all(self, channel: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while True:
                await self._can_send.wait()
                self._can_send.clear()
                piece, self._unsent = self._unsent, bytearray()
                await loop.sock_sendall(channel, piece)
                self._has_sent.set()


def _is_gone(writer: asyncio.StreamWriter) -> bool:
    """Return whether the other end of a socket is closed in both directions."""
    asked = select.poll()
    asked.register(writer.get_extra_info("socket").fileno(), 0)
    return bool(asked.poll(0))


async def _dialled(path: Path) -> Connection:
    """Return a connection to a socket. Raises OSError."""
    with short_address(path) as address:
        return await asyncio.open_unix_connection(address)
