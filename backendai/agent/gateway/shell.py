"""The gateway's route for SSH: an unread byte stream to the kernel's guest agent.

A request with ``Upgrade: guest`` opens it. After the answer 101 the connection belongs to the guest: a line of JSON
that names the operation, then the data of the operation.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable
from typing import Any

from aiohttp import web

from backendai.agent.backends.base import BackendError
from backendai.agent.gateway.guest_links import GuestLinks
from backendai.agent.kernel_index import KernelIndex
from backendai.base.wire.splice import splice, take_over, take_over_streams
from backendai.base.wire.tickets import Ticket, TicketRefused

logger = logging.getLogger(__name__)

_STATUS = {"ticket-refused": 403, "kernel-gone": 410, "execution-impossible": 501}
Admit = Callable[[web.Request], Ticket]


class ShellRoutes:
    """Serves the route. ``admit`` returns a request's ticket or raises. Refusals are JSON with a code and a message."""

    def __init__(self, links: GuestLinks, roster: KernelIndex, admit: Admit) -> None:
        self._links, self._roster, self._admit = links, roster, admit
        self._open: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()

    def add_to(self, router: web.UrlDispatcher) -> None:
        router.add_get("/kernels/{id}/guest", self._connect)

    def close(self) -> None:
        """Close every connection; the guests and their programs continue."""
        for task in list(self._open):
            task.cancel()

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade", "").lower() != "guest":
            raise web.HTTPBadRequest(text="a guest is asked for with Upgrade: guest")
        try:
            ticket = self._admit(request)
            self._links.forget(self._roster.ids())
            reader, writer = await self._links.open(ticket.kernel_id)
        except (TicketRefused, BackendError) as error:
            status = _STATUS.get(error.code, 503)
            if status == 503:
                logger.warning("no way into a kernel: %s", error.message)
            return web.json_response({"code": error.code, "detail": error.message}, status=status)
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            answer = web.StreamResponse(status=101, headers={"Connection": "Upgrade", "Upgrade": "guest"})
            await answer.prepare(request)
            await splice(take_over(request.protocol), take_over_streams(reader, writer))
        finally:
            writer.transport.abort()
        return answer
