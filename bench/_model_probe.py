"""A model server that answers ``ok``, one request at a time, each after the seconds that ``/takes/N`` has set.

``/stream`` sends 20 events a second with the time of each. It listens after LOAD seconds, as after loading a model.
"""

import asyncio
import os
import time

SHORT = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENTS_PER_SECOND = 20
takes = 0.0
turns: asyncio.Queue[asyncio.Transport] = asyncio.Queue()
streams: set[asyncio.Task[None]] = set()


class Model(asyncio.Protocol):
    """A connection, on which one request after the other comes."""

    def __init__(self) -> None:
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer whole requests."""
        self._head += data
        while b"\r\n\r\n" in self._head:
            head, _, self._head = self._head.partition(b"\r\n\r\n")
            self._answer(head.split(b" ", 2)[1].decode())

    def _answer(self, path: str) -> None:
        global takes
        if path == "/stream":
            streams.add(asyncio.ensure_future(stream(self._transport)))
        elif takes and path == "/":
            turns.put_nowait(self._transport)
        else:
            takes = float(path[7:]) if path.startswith("/takes/") else takes
            self._transport.write(SHORT)


async def stream(transport: asyncio.Transport) -> None:
    """Send events until the reader leaves."""
    transport.write(STREAM)
    due = time.monotonic()
    while not transport.is_closing():
        event = b"data: %d\n\n" % time.monotonic_ns()
        transport.write(b"%x\r\n%s\r\n" % (len(event), event))
        due += 1 / EVENTS_PER_SECOND
        await asyncio.sleep(due - time.monotonic())


async def main() -> None:
    """Listen for ever."""
    time.sleep(float(os.environ.get("LOAD", "0")))
    await asyncio.get_running_loop().create_server(Model, os.environ["HOST"], int(os.environ["PORT"]), backlog=512)
    while True:
        transport = await turns.get()
        await asyncio.sleep(takes)
        transport.write(SHORT)


asyncio.run(main())
