"""The gateway's route to the guest agents: it forwards requests and answers without reading them.

The request's body begins with a line of JSON that names the operation. The rest (an upload) is streamed, not buffered.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiohttp import web

from backendai.agent.backends.base import BackendError
from backendai.agent.gateway.guest_links import GuestLinks
from backendai.agent.kernel_index import KernelIndex
from backendai.base.wire.fields import told_of
from backendai.base.wire.runs import LARGEST_QUESTION, OPERATIONS
from backendai.base.wire.tickets import Ticket, TicketRefused

logger = logging.getLogger(__name__)

_STATUS = {"ticket-refused": 403, "kernel-gone": 410, "execution-impossible": 501}
_PIECE = 64 * 1024
_LOOK_SECONDS = 5.0
Admit = Callable[[web.Request], Ticket]


class GuestRoutes:
    """Serves the route. ``admit`` returns a request's ticket or raises. Refusals are JSON with a code and a message."""

    def __init__(self, links: GuestLinks, roster: KernelIndex, admit: Admit) -> None:
        self._links, self._roster, self._admit = links, roster, admit
        self._open: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()

    def add_to(self, app: web.Application) -> None:
        """Add the route. While the application runs, it also reconnects guests that an earlier agent started."""
        app.router.add_post("/kernels/{id}/execute", self._execute)
        app.cleanup_ctx.append(self._taking_up)

    async def _taking_up(self, _: web.Application) -> AsyncIterator[None]:
        looking = asyncio.create_task(self._take_up())
        yield
        looking.cancel()

    async def _take_up(self) -> None:
        while True:
            try:
                await self._links.take_up(self._roster.ids())
            except Exception:
                logger.exception("guests of an earlier agent cannot be looked for")
            await asyncio.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        """Close every open answer; the guests and their programs continue."""
        for task in list(self._open):
            task.cancel()
        self._links.close()

    async def _execute(self, request: web.Request) -> web.StreamResponse:
        try:
            ticket = self._admit(request)
            line = await _beginning(request)
            if _operation(line.partition(b"\n")[0]) not in OPERATIONS:
                raise web.HTTPBadRequest(text="there is no such operation")
            self._links.forget(self._roster.ids())
            reader, writer = await self._links.open(ticket.kernel_id)
        except (TicketRefused, BackendError) as error:
            status = _STATUS.get(error.code, 503)
            if status == 503:
                logger.warning("no run: %s", error.message)
            said = {"code": error.code, "detail": error.message, **told_of(error.message)}
            return web.json_response(said, status=status)
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        sending = asyncio.create_task(_send(request, line, writer))
        try:
            return await _pass_answer(request, reader)
        finally:
            sending.cancel()
            writer.close()


async def _beginning(request: web.Request) -> bytes:
    """Return the first line, and the bytes after it that have already arrived."""
    data = b""
    while b"\n" not in data and len(data) <= LARGEST_QUESTION and (piece := await request.content.readany()):
        data += piece
    if b"\n" not in data or data.index(b"\n") > LARGEST_QUESTION:
        raise web.HTTPRequestEntityTooLarge(LARGEST_QUESTION, len(data), text="the question is too large")
    return data


def _operation(line: bytes) -> str:
    try:
        asked = json.loads(line)
        return str(asked["op"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise web.HTTPBadRequest(text="the question cannot be read") from error


async def _send(request: web.Request, line: bytes, writer: asyncio.StreamWriter) -> None:
    """Send the question and the rest of the body to the guest, at the guest's speed."""
    with contextlib.suppress(OSError):
        writer.write(line)
        await writer.drain()
        while piece := await request.content.read(_PIECE):
            writer.write(piece)
            await writer.drain()


async def _pass_answer(request: web.Request, reader: asyncio.StreamReader) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(_PIECE):
            await response.write(piece)
        await response.write_eof()
    return response
