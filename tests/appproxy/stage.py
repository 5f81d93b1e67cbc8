"""The app proxy between a browser and a real gateway, behind which one app of Alice's session listens."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestServer
from asgiref.sync import sync_to_async
from django.conf import settings
from django.test import Client
from django.utils import timezone
from yarl import URL

from backendai.agent.gateway.server import Gateway, GatewayView
from backendai.agent.kernel_index import KernelIndex
from backendai.base.wire.tickets import public_key_of
from backendai.domain.accounts.models import User
from backendai.domain.accounts.sign_in.credentials import Credential
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.services.apps.of_session import host_of, make_entry
from backendai.gates.appproxy.server import serving
from tests.agent.fake_services import FakeServices
from tests.agent.memory_backend import Entry, MemoryBackend
from tests.cast import Cast, make_cast
from tests.factories import make_image, make_running_session

PIECE = 64 * 1024


class App:
    """What runs in the session. ``requests`` are those it has got."""

    def __init__(self) -> None:
        self.port: int | None = None
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.sent = 0
        self.answer_headers: list[tuple[str, str]] = []
        self.websockets: list[web.WebSocketResponse] = []
        self.websockets_left = 0
        self.reader_left = asyncio.Event()

    def application(self) -> web.Application:
        app = web.Application(client_max_size=2**30)
        app.router.add_get("/ws", self._websocket)
        app.router.add_get("/stream/{size}", self._stream)
        app.router.add_post("/count", self._count)
        app.router.add_get("/wait", self._wait)
        app.router.add_get("/break", self._break_off)
        app.router.add_get("/cut", self._cut)
        app.router.add_route("*", "/{path:.*}", self._echo)
        return app

    async def _echo(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        self.bodies.append(await request.read())
        response = web.Response(text=f"{request.method} {request.raw_path}")
        response.headers.extend(self.answer_headers)
        return response

    async def _websocket(self, request: web.Request) -> web.WebSocketResponse:
        self.requests.append(request)
        websocket = web.WebSocketResponse(protocols=("notes",), max_msg_size=0)
        self.websockets.append(websocket)
        await websocket.prepare(request)
        await websocket.send_str("welcome")
        try:
            async for frame in websocket:
                if frame.type is WSMsgType.TEXT:
                    await websocket.send_str(frame.data.upper())
                else:
                    await websocket.send_bytes(frame.data)
        finally:
            self.websockets_left += 1
        return websocket

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        size = int(request.match_info["size"])
        response = web.StreamResponse(headers={"Content-Length": str(size)})
        await response.prepare(request)
        while self.sent < size:
            await response.write(b"x" * min(PIECE, size - self.sent))
            self.sent += PIECE
        return response

    async def _count(self, request: web.Request) -> web.Response:
        digest, count = hashlib.sha256(), 0
        async for piece in request.content.iter_any():
            digest.update(piece)
            count += len(piece)
        return web.json_response({"count": count, "digest": digest.hexdigest()})

    async def _wait(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.reader_left.set()
            raise
        return response

    async def _cut(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first")
        await asyncio.sleep(0.1)
        assert request.transport is not None
        request.transport.abort()
        return response

    async def _break_off(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


class Stage:
    """Everything, and a browser that does what it is told and nothing else."""

    def __init__(self, cast: Cast, session: ComputeSession, app: App, services: FakeServices) -> None:
        self.cast, self.session, self.app, self.services = cast, session, app, services
        self.kernel: Kernel = session.kernels.get()
        self.host = host_of(session, "notes")
        self.browser = Client()
        self.browser.force_login(cast.alice)
        self.port = 0
        self.client: aiohttp.ClientSession

    @property
    def netloc(self) -> str:
        """The Host header that browsers send."""
        return f"{self.host}:{settings.APPS_PUBLIC_PORT}"

    @property
    def origin(self) -> str:
        """The app's own origin."""
        return f"http://{self.netloc}"

    def credential(self) -> Credential:
        return Credential(login=self.browser.session.session_key or "")

    async def code(self, user: User | None = None, **over: Any) -> str:
        """Return a one-time code for Alice."""

        def make() -> str:
            when = over.pop("now", timezone.now())
            credential = over.pop("credential", None) or self.credential()
            return make_entry(
                user or self.cast.alice, self.session, "notes", credential, when, portal="portal.example.org"
            ).code

        return await sync_to_async(make)()

    async def ask(self, method: str, path: str, *, cookie: str = "", **options: Any) -> aiohttp.ClientResponse:
        """Send a request to the app's host."""
        headers = {"Host": self.netloc, **options.pop("headers", {})}
        if cookie:
            headers["Cookie"] = "; ".join(part for part in (headers.get("Cookie"), cookie) if part)
        url = URL(f"http://127.0.0.1:{self.port}{path}", encoded=True)
        return await self.client.request(method, url, headers=headers, allow_redirects=False, **options)

    async def enter(self, user: User | None = None, **over: Any) -> str:
        """Exchange a new code; returns the cookie to send from then on."""
        answer = await self.ask("POST", "/.backendai/enter", data={"code": await self.code(user, **over)})
        assert answer.status == 303, await answer.text()
        return answer.headers["Set-Cookie"].split(";")[0]

    async def websocket(self, cookie: str, **headers: str) -> aiohttp.ClientWebSocketResponse:
        """Open the app's websocket."""
        told = {"Host": self.netloc, "Origin": self.origin, "Cookie": cookie} | headers
        url = f"http://127.0.0.1:{self.port}/ws"
        return await self.client.ws_connect(url, headers=told, protocols=("notes",), max_msg_size=0)


def make_world(services: FakeServices) -> tuple[Cast, ComputeSession]:
    """Return the people and Alice's running session."""
    cast = make_cast()
    make_image(labels={"ai.backend.service-ports": "notes:http:8080,ring:tcp:9000"})
    return cast, make_running_session(cast.alice, name="hers")


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    """Put everything up."""
    services, app = FakeServices(), App()
    cast, session = await sync_to_async(make_world)(services)
    here = await sync_to_async(Stage)(cast, session, app, services)
    server = TestServer(app.application(), handler_cancellation=True)
    await server.start_server()
    app.port = server.port
    await sync_to_async(lead_to)(session, app.port)
    async with (
        _gateway(here),
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False) as client,
    ):
        here.client = client
        listener = socket.create_server(("127.0.0.1", 0))
        here.port = listener.getsockname()[1]
        async with serving(listener):
            yield here
    await server.close()


@asynccontextmanager
async def _gateway(here: Stage) -> AsyncIterator[None]:
    backend, roster = MemoryBackend(), KernelIndex()
    backend.services = here.services
    backend.entries[here.kernel.pk] = Entry(here.kernel.generation)
    roster.note(here.kernel.pk, here.kernel.generation)
    key = public_key_of(settings.TICKET_KEY)
    gateway = Gateway(GatewayView(backend, roster, lambda: key, time.time, dict))
    server = TestServer(gateway.application(), handler_cancellation=True)
    await server.start_server()
    await Agent.objects.aupdate(gateway_url=str(server.make_url("")).rstrip("/"))
    yield
    await gateway.close_websockets()
    await server.close()


def lead_to(session: ComputeSession, port: int | None) -> None:
    session.image.labels = {"ai.backend.service-ports": f"notes:http:{port},ring:tcp:9000"}
    session.image.save()
