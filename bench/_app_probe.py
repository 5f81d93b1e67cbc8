"""An app that answers at once: ``ok`` at every path, and as many bytes as it was told at ``/large``."""

from __future__ import annotations

import asyncio
import sys

_SHORT = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"


class App(asyncio.Protocol):
    """A connection, on which one request after the other comes."""

    def __init__(self, large: bytes) -> None:
        self._large = large
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
            self._transport.write(self._large if head.startswith(b"GET /large") else _SHORT)


async def main() -> None:
    """Listen for ever."""
    port, size = int(sys.argv[1]), int(sys.argv[2])
    large = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + bytes(size)
    server = await asyncio.get_running_loop().create_server(lambda: App(large), "127.0.0.1", port)
    await server.serve_forever()


asyncio.run(main())
