"""The app proxy before a real gateway, behind which replicas of one endpoint listen, each on an address of its own."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import aiohttp
from aiohttp import web
from asgiref.sync import sync_to_async
from django.conf import settings
from django.utils import timezone

from backendai.agent.backends.base import KernelGone
from backendai.agent.gateway.server import Gateway, GatewayView
from backendai.agent.kernel_index import KernelIndex
from backendai.base.wire.messages import KernelState
from backendai.base.wire.tickets import public_key_of
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.serving.models import Endpoint, Replica, State
from backendai.domain.serving.moves import grow_versions
from backendai.domain.serving.services.tokens import create_token
from backendai.gates.appproxy.server import serving
from backendai.portal.loops import loops
from backendai.portal.loops.loops import run_serving
from tests.agent.fake_services import FakeServices
from tests.agent.memory_backend import Entry, MemoryBackend
from tests.cast import make_cast
from tests.factories import make_agent, report_of
from tests.patience import patient
from tests.serving.world import a_revision, make_endpoint


class Model:
    """A model server. ``gate`` holds answers up; ``refuses`` lets it answer 503 to probes; ``raw`` is sent once, as it
    is, in the place of an answer, and then the connection is closed unless it ``stays``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.status, self.refuses, self.breaks, self.breaks_streams = 200, False, False, False
        self.raw, self.stays = b"", False
        self.probes = 0
        self.left = asyncio.Event()

    def application(self) -> web.Application:
        app = web.Application(client_max_size=2**30)
        app.router.add_get("/health", self._health)
        app.router.add_get("/stream", self._stream)
        app.router.add_get("/ticks", self._ticks)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    async def _health(self, request: web.Request) -> web.Response:
        self.probes += 1
        return web.Response(status=503 if self.refuses else 200)

    async def _answer(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        self.bodies.append(await request.read())
        if self.breaks:
            assert request.transport is not None
            request.transport.abort()
        if self.raw:
            assert request.transport is not None
            request.transport.write(self.raw)
            self.raw = b""
            if not self.stays:
                request.transport.close()
            await asyncio.Event().wait()
        await self.gate.wait()
        return web.Response(text=self.name, status=self.status)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        """Stream its name and two words, as OpenAI does, to those who ask for a stream."""
        said = json.loads(await request.text())
        if not said.get("stream"):
            return await self._answer(request)
        self.requests.append(request)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for word in (self.name, "two", "words"):
            choice = {"index": 0, "delta": {"content": f"{word} "}, "finish_reason": None}
            event = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}
            await response.write(f"data: {json.dumps(event)}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            await response.write(b"data: one\n\n")
            if self.breaks_streams and request.transport is not None:
                request.transport.abort()
                await asyncio.Event().wait()
            await self.gate.wait()
            await response.write(b"data: two\n\n")
        except (asyncio.CancelledError, ConnectionError):
            self.left.set()
            raise
        return response

    async def _ticks(self, request: web.Request) -> web.StreamResponse:
        """Send a piece every 20 ms until the gate opens."""
        response = web.StreamResponse()
        await response.prepare(request)
        while not self.gate.is_set():
            await response.write(b".")
            await asyncio.sleep(0.02)
        return response


class Services(FakeServices):
    """Each kernel has an address of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.of_kernel: dict[UUID, str] = {}

    def address(self, kernel_id: UUID) -> str:
        if kernel_id not in self.of_kernel:
            raise KernelGone("It is gone.")
        return self.of_kernel[kernel_id]


class Stage:
    """What a test of endpoints needs."""

    def __init__(self, port: int) -> None:
        self.port, self.model_port = 0, port
        self.services, self.models = Services(), dict[int, Model]()
        self.backend, self.roster = MemoryBackend(), KernelIndex()
        self.backend.services = self.services
        self.client: aiohttp.ClientSession
        self.gateway: Gateway
        self.now = timezone.now()
        self._runners: list[web.AppRunner] = []
        self.cast = make_cast()
        make_agent("node", cpu=32, mem="64g")

    def create(self, **over: Any) -> None:
        """Create the endpoint and a token."""
        revision = a_revision(port=self.model_port, model_name=over.pop("model_name", ""))
        self.endpoint: Endpoint = make_endpoint(self.cast.alice, revision=revision, **over)
        self.token, self.text = create_token(self.endpoint, self.cast.alice, "test")

    def _pass(self) -> list[tuple[int, UUID, int]]:
        """Run the passes, and report what started or ended; returns the new ones."""
        self.now = max(timezone.now(), self.now + timedelta(milliseconds=1))
        run_serving(self.now)
        loops.run_pass(self.now)
        new = []
        for kernel in Kernel.objects.filter(status__in=["SCHEDULED", "TERMINATING"]).select_related("agent"):
            number = Replica.objects.get(session=kernel.session_id).number
            if kernel.status == "SCHEDULED":
                kernel_reported(kernel.agent, report_of(kernel, KernelState.RUNNING, container_id="c"))
                new.append((number, kernel.pk, kernel.generation))
            else:
                kernel_reported(kernel.agent, report_of(kernel, KernelState.TERMINATED, exit_code=143))
                self.services.of_kernel.pop(kernel.pk, None)
        return new

    async def step(self) -> None:
        """Run a pass and give new replicas their servers."""
        for number, kernel_id, generation in await sync_to_async(self._pass)():
            self.backend.entries[kernel_id] = Entry(generation)
            self.roster.note(kernel_id, generation)
            self.models.setdefault(number, Model(str(number)))
            address = f"127.0.1.{number}"
            runner = web.AppRunner(self.models[number].application(), handler_cancellation=True)
            await runner.setup()
            await web.TCPSite(runner, address, self.model_port).start()
            self._runners.append(runner)
            self.services.of_kernel[kernel_id] = address

    async def until(self, condition: Any, *, steps: bool = True) -> None:
        """Let the platform work until something is so; a limit for broken tests only."""
        async with asyncio.timeout(patient(60)):
            while not await sync_to_async(condition)():
                if steps:
                    await self.step()
                await asyncio.sleep(0.05)

    async def until_ready(self, number: int) -> None:
        """Let so many replicas be READY, and known to the proxy."""
        await self.until(lambda: Replica.objects.filter(state=State.READY).count() == number)

    @property
    def host(self) -> str:
        return f"{self.endpoint.label}.{settings.APPS_DOMAIN}"

    async def ask(self, method: str = "GET", path: str = "/v1/models", **options: Any) -> aiohttp.ClientResponse:
        """Send a request with the token."""
        headers = {"Host": self.host, "Authorization": f"Bearer {self.text}", **options.pop("headers", {})}
        url = f"http://127.0.0.1:{self.port}{path}"
        return await self.client.request(method, url, headers=headers, allow_redirects=False, **options)

    async def cut(self, number: int) -> None:
        """Let nothing listen any more where this replica was."""
        for kernel_id, address in list(self.services.of_kernel.items()):
            if address == f"127.0.1.{number}":
                self.services.of_kernel[kernel_id] = "127.0.1.250"

    def gateway_starts_again(self) -> None:
        """Let the gateway give tunnels as after a restart of the agent."""
        self.gateway._apps._stops = False

    async def change(self, **columns: Any) -> None:
        """Change columns of the endpoint as its owner could."""

        def write() -> None:
            Endpoint.objects.filter(pk=self.endpoint.pk).update(**columns)
            grow_versions([self.endpoint.pk])

        await sync_to_async(write)()

    async def close(self) -> None:
        for model in self.models.values():
            model.gate.set()
        for runner in self._runners:
            await runner.cleanup()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@asynccontextmanager
async def endpoint_stage(replicas: int = 1, **over: Any) -> AsyncIterator[Stage]:
    """Put everything up, with so many replicas that serve."""
    here = await sync_to_async(Stage)(free_port())
    over = {"minimum": replicas, "maximum": max(replicas, 1)} | over
    await sync_to_async(here.create)(**over)
    key = public_key_of(settings.TICKET_KEY)
    gateway = Gateway(GatewayView(here.backend, here.roster, lambda: key, time.time, dict))
    here.gateway = gateway
    runner = web.AppRunner(gateway.application(), handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    await Agent.objects.aupdate(gateway_url=f"http://127.0.0.1:{port}")
    listener = socket.create_server(("127.0.0.1", 0))
    here.port = listener.getsockname()[1]
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as client:
        here.client = client
        async with serving(listener):
            if replicas:
                await here.until_ready(replicas)
            yield here
        await here.close()
    await gateway.close_websockets()
    await runner.cleanup()
