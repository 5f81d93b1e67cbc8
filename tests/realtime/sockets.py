"""A small node gateway, and websockets as browsers and scripts open them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestServer
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.test import Client

from backendai.base.wire.tickets import Ticket, public_key_of, read_ticket
from backendai.domain.accounts.models import User
from backendai.domain.accounts.services import create_token
from backendai.portal.realtime.routing import websocket_application
from tests.patience import patient

PORTAL = (b"host", b"portal.example")
Header = tuple[bytes, bytes]


class FakeGateway:
    """Echoes terminals in upper case; ``close 4001`` typed into one closes it so. Logs are two pieces of text."""

    def __init__(self) -> None:
        self.requests: list[web.Request] = []
        self.texts: list[str] = []
        self.log_status, self.redirect = 200, ""
        self.more_log = asyncio.Event()
        self.terminal_closed = asyncio.Event()
        self.log_reader_left = asyncio.Event()

    def ticket(self, purpose: Any) -> Ticket:
        """Return the ticket of the last request."""
        token = self.requests[-1].headers["Authorization"].removeprefix("Ticket ")
        return read_ticket(public_key_of(settings.TICKET_KEY), token, purpose=purpose, now=0)

    async def terminal(self, request: web.Request) -> web.WebSocketResponse:
        self.requests.append(request)
        if self.redirect:
            raise web.HTTPFound(self.redirect)
        websocket = web.WebSocketResponse()
        await websocket.prepare(request)
        await websocket.send_json({"type": "ready"})
        async for frame in websocket:
            if frame.type is WSMsgType.TEXT:
                self.texts.append(frame.data)
            elif frame.data.startswith(b"close "):
                await websocket.close(code=int(frame.data[6:]), message=b"as typed")
            elif frame.data == b"die":
                assert request.transport is not None
                request.transport.abort()
            else:
                await websocket.send_bytes(frame.data.upper())
        self.terminal_closed.set()
        return websocket

    async def log(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        if self.redirect:
            raise web.HTTPFound(self.redirect)
        if self.log_status != 200:
            return web.Response(status=self.log_status, text="secret of the node")
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first \xff\n")
        try:
            await self.more_log.wait()
        except asyncio.CancelledError:
            self.log_reader_left.set()
            raise
        await response.write(b"second\n")
        return response


@asynccontextmanager
async def fake_gateway() -> AsyncIterator[tuple[FakeGateway, str]]:
    """Run a gateway; yields it with its address."""
    gateway, app = FakeGateway(), web.Application()
    app.router.add_get("/kernels/{id}/terminal", gateway.terminal)
    app.router.add_get("/kernels/{id}/log", gateway.log)
    server = TestServer(app)
    await server.start_server()
    try:
        yield gateway, str(server.make_url("")).rstrip("/")
    finally:
        await server.close()


def page(user: User) -> list[Header]:
    """Return the headers of the portal's own page, in the browser of somebody who is signed in."""
    client = Client()
    client.force_login(user)
    cookie = f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"
    return [PORTAL, (b"origin", b"http://portal.example"), (b"cookie", cookie.encode())]


def script(user: User, **token: Any) -> list[Header]:
    """Return the headers of a script with a bearer token."""
    return [PORTAL, (b"authorization", f"Bearer {create_token(user, 'tests', **token)[1]}".encode())]


class Socket:
    """The client's end of a websocket. ``accepted`` says whether the handshake went well, ``code`` why not."""

    def __init__(self, path: str, headers: list[Header]) -> None:
        path, _, query = path.partition("?")
        scope = {"type": "websocket", "path": path, "query_string": query.encode(), "headers": headers}
        self._wire = ApplicationCommunicator(websocket_application, scope)
        self.accepted, self.code = False, None
        self.refused: tuple[int, str] | None = None  # what is logged of a refused handshake; the client sees HTTP 403

    async def open(self) -> None:
        await self._wire.send_input({"type": "websocket.connect"})
        answer = await self.event()
        self.accepted, self.code = answer["type"] == "websocket.accept", answer.get("code")
        if answer["type"] == "websocket.close":
            self.refused = answer.get("code", 0), answer.get("reason", "")

    async def event(self) -> dict[str, Any]:
        """Return what the portal does next."""
        return dict(await self._wire.receive_output(timeout=patient(5)))

    async def send(self, content: bytes | str) -> None:
        """Send one binary or text frame."""
        kind = "bytes" if isinstance(content, bytes) else "text"
        await self._wire.send_input({"type": "websocket.receive", kind: content})

    async def frame(self) -> bytes | str:
        """Return the content of the next frame."""
        event = await self.event()
        assert event["type"] == "websocket.send", event
        content: bytes | str = event["bytes"] if event.get("bytes") is not None else event["text"]
        return content

    async def message(self) -> Any:
        """Return the next text frame, read as JSON."""
        return json.loads(await self.frame())

    async def bytes_until(self, end: bytes) -> bytes:
        """Return binary frames joined, up to the one that ends so."""
        content = b""
        while not content.endswith(end):
            frame = await self.frame()
            content += frame if isinstance(frame, bytes) else b""
        return content

    async def closing(self) -> tuple[int, str]:
        """Return the code and reason of the close that comes next, letting frames pass."""
        while True:
            event = await self.event()
            if event["type"] == "websocket.close":
                return event["code"], event.get("reason", "")

    async def is_quiet(self) -> bool:
        """Return whether nothing comes for a moment."""
        return bool(await self._wire.receive_nothing())

    async def leave(self) -> None:
        """Close this end and wait for the portal to let go."""
        await self._wire.send_input({"type": "websocket.disconnect", "code": 1005})
        await self._wire.wait(timeout=patient(5))


@asynccontextmanager
async def socket(path: str, headers: list[Header]) -> AsyncIterator[Socket]:
    """Open a websocket and leave it at the end."""
    one = Socket(path, headers)
    await one.open()
    try:
        yield one
    finally:
        await one.leave()
