"""The gateway's routes for apps: the state of an app, and tunnels to its port.

A tunnel is a request with ``Upgrade: tcp``; after the answer 101 the connection carries the bytes of the port. The app
proxy, which alone gets tickets for tunnels, checks their content.
"""

from __future__ import annotations

import asyncio
import json
import logging
import weakref
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from aiohttp import web

from backendai.agent.backends.base import Backend, BackendError, KernelGone
from backendai.agent.gateway.app_starts import AppStarts
from backendai.agent.gateway.guest_links import GuestLinks
from backendai.agent.gateway.ports import Ports
from backendai.agent.kernel_index import KernelIndex
from backendai.base.core.service_ports import REPLICA_SERVICE
from backendai.base.wire.fields import told_of
from backendai.base.wire.splice import Side, splice, take_over
from backendai.base.wire.tickets import Ticket, TicketRefused

logger = logging.getLogger(__name__)

_STATUS = {"ticket-refused": 403, "kernel-gone": 410, "apps-impossible": 501, "app-not-listening": 502} | {
    "bad-arguments": 400
}
_MOST_WORDS = 64
STOPS = "agent-stops"
Admit = Callable[[web.Request], Ticket]


class AppRoutes:
    """Serves the app routes. ``admit`` returns a request's ticket or raises. Refusals are JSON with a code and a
    message."""

    def __init__(self, backend: Backend, roster: KernelIndex, links: GuestLinks, admit: Admit) -> None:
        self._admit, self._roster, self._links = admit, roster, links
        self._ports = Ports(backend.services, links) if backend.services else None
        self._starts = AppStarts(backend.services, self._ports) if backend.services else None
        self._open: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._to_replicas: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._stops = False

    def add_to(self, router: web.UrlDispatcher) -> None:
        router.add_post("/kernels/{id}/app", self._look)
        router.add_get("/kernels/{id}/app", self._tunnel)

    async def close(self, grace: float) -> None:
        """Refuse new tunnels and close the open ones; tunnels to replicas have ``grace`` seconds to finish their
        requests."""
        self._stops = True
        for task in set(self._open) - set(self._to_replicas):
            task.cancel()
        if grace and (busy := set(self._to_replicas)):
            await asyncio.wait(busy, timeout=grace)
        for task in list(self._open):
            task.cancel()

    async def _look(self, request: web.Request) -> web.Response:
        try:
            ticket = self._admit(request)
            self._can_reach()
            assert self._starts is not None
            self._starts.forget(self._roster.ids())
            self._links.forget(self._roster.ids())
            again = request.query.get("again") == "1"
            words = await _arguments(request)
            state = await self._starts.look(ticket.kernel_id, ticket.service, ticket.port, again=again, arguments=words)
        except (TicketRefused, BackendError) as error:
            return _refusal(error)
        return web.json_response({**asdict(state), **told_of(state.message)})

    async def _tunnel(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade", "").lower() != "tcp":
            raise web.HTTPBadRequest(text="a tunnel is asked for with Upgrade: tcp")
        try:
            ticket = self._admit(request)
            app = await self._dial(ticket)
        except (TicketRefused, BackendError) as error:
            return _refusal(error)
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        if ticket.service == REPLICA_SERVICE:
            self._to_replicas.add(task)
        try:
            answer = web.StreamResponse(status=101, headers={"Connection": "Upgrade", "Upgrade": "tcp"})
            try:
                await answer.prepare(request)
            except ConnectionResetError:  # the app proxy has left while the app was reached
                return answer
            await splice(take_over(request.protocol), app)
        finally:
            app.abort()
        return answer

    async def _dial(self, ticket: Ticket) -> Side:
        if self._stops:
            raise BackendError("The agent stops, and may be back in a moment.", code=STOPS)
        app = await self._can_reach().dial(ticket.kernel_id, ticket.service, ticket.port)
        if self._roster.generation(ticket.kernel_id) != ticket.generation:
            app.abort()
            raise KernelGone("The kernel has moved.")
        return app

    def _can_reach(self) -> Ports:
        if self._ports is None:
            raise BackendError(
                "This agent cannot protect the ports of its sessions from others.", code="apps-impossible"
            )
        return self._ports


async def _arguments(request: web.Request) -> tuple[str, ...]:
    """Return the arguments for the app's command. The portal has checked that the image allows them."""
    said = await request.read()
    try:
        words = json.loads(said or b"{}").get("arguments", [])
    except (ValueError, AttributeError, RecursionError):
        words = None
    is_list = isinstance(words, list) and len(words) <= _MOST_WORDS
    if not is_list or not all(isinstance(word, str) and word.isprintable() for word in words):
        raise BackendError("These are no arguments.", code="bad-arguments")
    return tuple(words)


def _refusal(error: TicketRefused | BackendError) -> web.Response:
    status = _STATUS.get(error.code, 503)
    if status == 503 and error.code != STOPS:
        logger.warning("no app: %s", error.message)
    said = {"code": error.code, "detail": error.message, **told_of(error.message)}
    return web.json_response(said, status=status)
