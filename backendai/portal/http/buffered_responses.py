"""Runs WSGI under ASGI, with a thread for no longer than the application works.

The library sends each part from the thread, which then waits for the reader; and changes to the event loop for each
of headers, 4 KB of a file and end, which was a third of a short request's processor time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from asgiref.sync import sync_to_async
from asgiref.wsgi import WsgiToAsgi, WsgiToAsgiInstance

from backendai.portal.http.garbage_collection import free_what_is_left

_PIECE = 2**18  # an answer below is sent whole, and more than that of an answer is never in memory
_LARGE_BODY = 2**16  # a larger one waits on the disk
_MOST_LARGE_BODIES = 2  # 32 bodies of 900 KB, parsed at once, held the pages of everybody for 15 seconds
Message = dict[str, Any]


class _ClientLeft(Exception):
    """The client has left before the end of the body: the library's error was a traceback in the log for each."""


class BufferedResponses(WsgiToAsgi):
    """An ASGI application that wraps a WSGI one.

    A file is sent as the reader takes it. Other long answers are made to their end first, on the disk: so a slow
    reader holds neither the thread nor its database connection. ``is_large``: the answers take much memory while they
    are made, so one is made at a time, and freed before the next. Two large bodies are read at a time. Further requests
    wait without a thread.
    """

    def __init__(self, application: Any, *, is_large: bool = False) -> None:
        super().__init__(application)
        self._turn = asyncio.Lock() if is_large else None
        self._large_bodies = asyncio.Semaphore(_MOST_LARGE_BODIES)

    async def __call__(self, scope: Any, receive: Any, send: Callable[[Message], Awaitable[None]]) -> None:
        """Serve one request."""
        answer = _Answer(self.wsgi_application, self.duplicate_header_limit)
        answer.turn, answer.large_bodies = self._turn, self._large_bodies

        async def asked() -> Message:
            message: Message = await receive()
            if message["type"] == "http.disconnect":
                raise _ClientLeft
            return message

        try:
            await answer(scope, asked, send)
        except _ClientLeft:
            return
        await send(answer.response_start)
        await send({"type": "http.response.body", "body": answer.first, "more_body": answer.rest is not None})
        while answer.rest is not None:
            piece = await sync_to_async(answer.read)()
            await send({"type": "http.response.body", "body": piece, "more_body": answer.rest is not None})


class _FileToSend:
    """Tells Django that a file can be sent without its response, whose ``close`` Django lays over the file's."""

    def __init__(self, file: IO[bytes], _: int = 0) -> None:
        self.file = file


class _Answer(WsgiToAsgiInstance):
    """One answer: its ``first`` piece, and ``rest``, an open file with the other ones, or None."""

    turn: asyncio.Lock | None
    large_bodies: asyncio.Semaphore
    first: bytes
    rest: IO[bytes] | None = None

    async def run_wsgi_app(self, body: Any) -> None:
        """Run the application until its answer is whole."""
        async with AsyncExitStack() as turns:  # the body has arrived, and no reader is waited for
            if body.seek(0, os.SEEK_END) > _LARGE_BODY:
                await turns.enter_async_context(self.large_bodies)
            body.seek(0)
            if self.turn is not None:
                await turns.enter_async_context(self.turn)
            await self._run(body)
            if self.turn is not None:
                await sync_to_async(free_what_is_left)()

    @sync_to_async
    def _run(self, body: Any) -> None:
        try:
            environ = self.build_environ(self.scope, body) | {"wsgi.file_wrapper": _FileToSend}
        except ValueError:
            self.start_response("400 Bad Request", [("content-type", "text/plain")])
            self.first = b"Bad Request: Too many duplicate headers"
            return
        made = self.wsgi_application(environ, self.start_response)
        self.rest = made.file if isinstance(made, _FileToSend) else _written(made)
        self.first = self.read()

    def read(self) -> bytes:
        """Return the next piece of the rest, and close the rest at its end."""
        assert self.rest is not None
        piece = self.rest.read(_PIECE)
        if len(piece) < _PIECE:
            self.rest.close()
            self.rest = None
        return piece


def _written(made: Any) -> Any:
    """Return the answer of an application as a file, and close it.

    Raises RuntimeError for the asynchronous answer of a synchronous view: all of it would be collected in memory.
    """
    content: Any = SpooledTemporaryFile(max_size=_PIECE)  # noqa: SIM115  (the sender closes it)
    try:
        if getattr(made, "is_async", False):
            raise RuntimeError("a synchronous view gives an asynchronous answer: make it a coroutine")
        for part in made:
            if len(part) > _PIECE:
                content.rollover()  # else the part would be copied into memory first
            content.write(part)
    except BaseException:
        content.close()
        raise
    finally:
        if close := getattr(made, "close", None):
            close()
    content.seek(0)
    return content
