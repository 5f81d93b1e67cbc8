"""An agent's HTTP server: terminals, logs, apps and files of its kernels, for requests with a ticket.

It runs on an event loop in a thread of its own; blocking calls of the backend run in other threads.
"""

from __future__ import annotations

import asyncio
import logging
import re
import weakref
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from uuid import UUID

from aiohttp import web

from backendai.agent.backends.abilities import HomeProviding, Mounting, Streaming
from backendai.agent.backends.base import Backend, BackendError, KernelGone
from backendai.agent.counts import registry
from backendai.agent.gateway.apps import AppRoutes
from backendai.agent.gateway.files import FileRoutes
from backendai.agent.gateway.guest import GuestRoutes
from backendai.agent.gateway.guest_links import GuestLinks
from backendai.agent.gateway.shell import ShellRoutes
from backendai.agent.gateway.terminal import SHELL_ENDED, WINDOW_BYTES, FlowWindow, relay, screen_side
from backendai.agent.kernel_index import UNKNOWN, KernelIndex
from backendai.base.core.service_ports import is_service_name
from backendai.base.process.metrics_access import NOBODY, PATH, Scrapers, answering
from backendai.base.wire.tickets import Purpose, Ticket, TicketRefused, read_ticket

logger = logging.getLogger(__name__)

KERNEL_GONE = 4001
TICKET_REFUSED = 4003
TERMINAL_FAILED = 1011
AGENT_RESTARTS = 1012
_HEARTBEAT_SECONDS = 30.0
_CLOSE_SECONDS = 2.0
_LARGEST_FRAME = 16 * 2**20
Answer = TypeVar("Answer")
_APP_LOG_BYTES = 2**20  # only the end of the log is sent
_TERMINAL_NAME = re.compile(r"^[A-Za-z0-9_-]{1,32}\Z")


@dataclass(frozen=True, slots=True)
class GatewayView:
    """The parts of the agent that the gateway uses. ``now`` returns the portal's time, as tickets expire by its
    clock."""

    backend: Backend
    roster: KernelIndex
    public_key: Callable[[], str]
    now: Callable[[], float]
    health: Callable[[], dict[str, object]]
    links: GuestLinks | None = None
    scrapers: Scrapers = NOBODY


class Gateway:
    """The routes of the gateway and its open websockets."""

    def __init__(self, view: GatewayView) -> None:
        self._view = view
        self._open: weakref.WeakSet[web.WebSocketResponse] = weakref.WeakSet()
        links = view.links or GuestLinks(view.backend.guests)
        self._apps = AppRoutes(view.backend, view.roster, links, lambda request: self._ticket(request, "app"))
        self._guests = GuestRoutes(links, view.roster, lambda request: self._ticket(request, "execute"))
        self._shells = ShellRoutes(links, view.roster, lambda request: self._ticket(request, "shell"))
        self._files = FileRoutes(view.backend, lambda request: self._ticket(request, "files"))

    def application(self) -> web.Application:
        """Return the aiohttp application that serves the routes."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get(PATH, answering(registry, self._view.scrapers))
        app.router.add_get("/kernels/{id}/terminal", self._terminal)
        app.router.add_get("/kernels/{id}/log", self._log)
        app.router.add_get("/kernels/{id}/home", self._home)
        app.router.add_post("/kernels/{id}/cut", self._cut)
        self._apps.add_to(app.router)
        self._files.add_to(app.router)
        self._guests.add_to(app)
        self._shells.add_to(app.router)
        return app

    async def close_websockets(self, grace: float = 0.0) -> None:
        """Close every terminal with the code of a restart, and the tunnels; tunnels to replicas get up to ``grace``
        seconds."""
        self._shells.close()
        self._guests.close()
        closing = (one.close(code=AGENT_RESTARTS, message=b"agent restarts") for one in list(self._open))
        await asyncio.gather(self._apps.close(grace), *closing, return_exceptions=True)

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.json_response(self._view.health())

    async def _terminal(self, request: web.Request) -> web.WebSocketResponse:
        name = request.query.get("name", "web")
        try:
            rows, cols = screen_side(request.query.get("rows", 24)), screen_side(request.query.get("cols", 80))
        except ValueError as error:
            raise web.HTTPBadRequest(text="rows and cols are numbers") from error
        if not _TERMINAL_NAME.match(name):
            raise web.HTTPBadRequest(text="name: letters, digits, dash and underscore, at most 32")
        websocket = web.WebSocketResponse(
            heartbeat=_HEARTBEAT_SECONDS, compress=False, max_msg_size=_LARGEST_FRAME, timeout=_CLOSE_SECONDS
        )
        # Accept first: clients see an earlier refusal as HTTP 403 without its code.
        await websocket.prepare(request)
        self._open.add(websocket)
        code, reason = await self._serve_terminal(request, websocket, name=name, rows=rows, cols=cols)
        await websocket.close(code=code, message=reason.encode()[:120])
        return websocket

    async def _serve_terminal(
        self, request: web.Request, websocket: web.WebSocketResponse, *, name: str, rows: int, cols: int
    ) -> tuple[int, str]:
        try:
            kernel_id = self._admit(request, "terminal")
            terminal = await self._streams().open_terminal(kernel_id, name=name, rows=rows, cols=cols)
        except TicketRefused as error:
            return TICKET_REFUSED, error.message
        except KernelGone as error:
            return KERNEL_GONE, error.message
        except BackendError as error:
            logger.warning("no terminal: %s", error.message)
            return TERMINAL_FAILED, error.message
        try:
            await websocket.send_json({"type": "ready"})
        except ConnectionError:
            await terminal.close()
            return SHELL_ENDED, "nobody is there"
        window = FlowWindow(None if request.query.get("ack") == "0" else WINDOW_BYTES)
        try:
            shell_ended = await relay(websocket, terminal, window)
        except BackendError as error:
            return TERMINAL_FAILED, error.message
        if shell_ended and await self._is_gone(kernel_id):
            return KERNEL_GONE, "the kernel has ended"
        return SHELL_ENDED, "the shell has ended"

    async def _log(self, request: web.Request) -> web.StreamResponse:
        tail = request.query.get("tail")
        if tail is not None and not tail.isdigit():
            raise web.HTTPBadRequest(text="tail is a number of lines")
        kernel_id, _ = await self._ask(request, "log", lambda kernel_id: self._streams().ended(kernel_id))
        if (app := request.query.get("app")) is not None:
            return await self._app_log(request, app)
        response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        await self._send_log(response, kernel_id, int(tail) if tail else None, request.query.get("follow") == "1")
        return response

    async def _app_log(self, request: web.Request, app: str) -> web.Response:
        services = self._view.backend.services
        if services is None:
            raise web.HTTPNotFound(text="This agent keeps no app logs: its backend starts no apps in kernels.")
        if not is_service_name(app):
            raise web.HTTPNotFound(text=f"{app[:32]!r} is not an app name: use an app of the session's image.")
        _, content = await self._ask(request, "log", partial(services.log, service=app, limit=_APP_LOG_BYTES))
        return web.Response(body=content, content_type="application/octet-stream")

    async def _home(self, request: web.Request) -> web.Response:
        backend = self._view.backend
        _, look = await self._ask(
            request, "home", backend.home if isinstance(backend, HomeProviding) else lambda _: None
        )
        if look is None:
            raise web.HTTPNotFound(text="The home folder cannot be seen from here.")
        return web.json_response(look.model_dump())

    async def _cut(self, request: web.Request) -> web.Response:
        backend = self._view.backend
        try:
            folder_id = UUID(request.query.get("folder", ""))
        except ValueError as error:
            raise web.HTTPBadRequest(text="folder is the id of a folder") from error

        def cut(kernel_id: UUID) -> int:
            if not isinstance(backend, Mounting):
                raise BackendError("This agent mounts no folders.")
            return backend.cut_folder(kernel_id, folder_id)

        _, ended = await self._ask(request, "cut", cut)
        return web.json_response({"ended": ended})

    async def _ask(
        self, request: web.Request, purpose: Purpose, question: Callable[[UUID], Answer]
    ) -> tuple[UUID, Answer]:
        """Return the request's kernel and the backend's answer about it. Errors become HTTP errors."""
        try:
            kernel_id = self._admit(request, purpose)
            return kernel_id, await asyncio.to_thread(question, kernel_id)
        except TicketRefused as error:
            raise web.HTTPForbidden(text=error.message) from error
        except KernelGone as error:
            raise web.HTTPNotFound(text=error.message) from error
        except BackendError as error:
            raise web.HTTPServiceUnavailable(text=error.message) from error

    async def _send_log(self, response: web.StreamResponse, kernel_id: UUID, tail: int | None, follow: bool) -> None:
        stream = self._streams().follow_log(kernel_id, tail=tail, follow=follow)
        try:
            async for chunk in stream:
                await response.write(chunk)
            await response.write_eof()
        except BackendError as error:
            logger.warning("the log of kernel %s broke off: %s", kernel_id, error.message)
        except ConnectionError:
            pass  # the client disconnected
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()

    def _streams(self) -> Streaming:
        if not isinstance(self._view.backend, Streaming):
            raise BackendError("This agent offers no terminals and no logs.")
        return self._view.backend

    def _admit(self, request: web.Request, purpose: Purpose) -> UUID:
        return self._ticket(request, purpose).kernel_id

    def _ticket(self, request: web.Request, purpose: Purpose) -> Ticket:
        """Return the request's ticket. Raises TicketRefused, KernelGone if the kernel is not here, and BackendError
        before the agent knows its kernels."""
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind != "Ticket":
            raise TicketRefused("A ticket is needed.")
        ticket = read_ticket(self._view.public_key(), token, purpose=purpose, now=self._view.now())
        if str(ticket.kernel_id) != request.match_info["id"].lower():
            raise TicketRefused("The ticket is for another kernel.")
        here = self._view.roster.generation(ticket.kernel_id)
        if here == UNKNOWN and not self._view.roster.is_complete:
            raise BackendError("The agent has just started and does not know its kernels yet: try again.")
        if here == UNKNOWN:
            raise KernelGone("The kernel is not on this agent.")
        if here != ticket.generation:
            raise TicketRefused("The ticket is for another generation of the kernel.")
        return ticket

    async def _is_gone(self, kernel_id: UUID) -> bool:
        try:
            return await asyncio.to_thread(self._view.backend.ended, kernel_id) is not None
        except BackendError as error:
            return isinstance(error, KernelGone)
