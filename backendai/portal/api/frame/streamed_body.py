"""Streams request bodies to a view. The web process holds no body in memory or on disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from django.core.handlers.asgi import ASGIHandler


class StreamedBody:
    """Replaces a request's body file and the messages of the server. Read ``pieces`` only once."""

    def __init__(self, receive: Any) -> None:
        self._receive = receive
        self._ended = asyncio.Event()
        self._is_gone = False

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Raises ConnectionResetError if the client disconnects before its end."""
        while not self._ended.is_set():
            message: Any = await self._receive()
            if message["type"] == "http.disconnect":
                self._is_gone = True
                self._ended.set()
                raise ConnectionResetError("the sender left before the end of the body")
            if not message.get("more_body", False):
                self._ended.set()
            if piece := message.get("body", b""):
                yield piece

    async def __call__(self) -> Any:
        """Wait until the body has ended, and return the server's next message: the client's disconnect."""
        await self._ended.wait()
        return {"type": "http.disconnect"} if self._is_gone else await self._receive()

    def read(self, *_: Any) -> bytes:
        """Raise OSError, as reading the whole body would block the worker.

        Django then takes the CSRF token from the header.
        """
        raise OSError("this body is read in pieces")

    readline = read

    def close(self) -> None:
        """Release the body; the server discards the rest."""


class StreamingHandler(ASGIHandler):
    """Django's handler for asynchronous views that read ``StreamedBody``."""

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request, and stop when the client disconnects."""
        await super().handle(scope, StreamedBody(receive), send)

    async def read_body(self, receive: Any) -> Any:
        """Return the stream instead of the body, without waiting."""
        return receive
