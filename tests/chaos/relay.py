"""A network between two parts of a platform that can be cut, stalled and slowed down: a TCP relay in this process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from types import TracebackType

_CHUNK = 65536
_RESET = struct.pack("ii", 1, 0)  # closing sends RST: the other side learns of it at once


class Relay:
    """Use as a context manager. ``target``: where it leads, which may be told later; ``host``: where it listens."""

    def __init__(self, target: tuple[str, int] = ("127.0.0.1", 0), *, host: str = "127.0.0.1") -> None:
        self.target, self._host = target, host
        self._is_cut, self._delay = False, 0.0
        self._flows = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)

    def __enter__(self) -> Relay:
        self._thread.start()
        self._flows.set()
        listener = socket.create_server((self._host, 0), backlog=256)
        self.port = int(listener.getsockname()[1])
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, sock=listener), self._loop
        ).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def cut(self) -> None:
        """Reset every connection, now and until ``mend``."""
        self._is_cut = True
        self._loop.call_soon_threadsafe(self._reset_all)

    def stall(self) -> None:
        """Take connections and bytes, and pass nothing on until ``mend``."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def slow_down(self, seconds: float) -> None:
        """Hold up each piece for so long until ``mend``."""
        self._delay = seconds

    def mend(self) -> None:
        """Pass everything on."""
        self._is_cut, self._delay = False, 0.0
        self._loop.call_soon_threadsafe(self._flows.set)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        there = None
        with contextlib.suppress(OSError):
            if not self._is_cut:
                from_there, there = await asyncio.open_connection(*self.target)
                self._writers.add(there)
                await asyncio.gather(self._pump(reader, there), self._pump(from_there, writer))
        for one in filter(None, (writer, there)):
            self._reset(one)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(_CHUNK):
            await self._flows.wait()
            await asyncio.sleep(self._delay)
            sink.write(data)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()

    def _reset_all(self) -> None:
        for writer in list(self._writers):
            self._reset(writer)

    def _reset(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        if self._is_cut:
            with contextlib.suppress(OSError, AttributeError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()
        else:
            writer.close()

    async def _close(self) -> None:
        self._server.close()
        self._is_cut = True
        self._flows.set()
        self._reset_all()
        pending = asyncio.all_tasks() - {asyncio.current_task()}
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
