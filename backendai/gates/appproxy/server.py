"""Runs the app proxy as a process with one event loop and one listening socket."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web
from django.conf import settings

from backendai.base.process.http_log import http_logger
from backendai.domain.compute.services.records.traffic import meter
from backendai.gates.appproxy.connection_limits import LimitedHandler, LimitedServer
from backendai.gates.appproxy.counts import counting
from backendai.gates.appproxy.endpoints.handler import EndpointHandler
from backendai.gates.appproxy.endpoints.service import Endpoints, usual_name
from backendai.gates.appproxy.file_handler import FileHandler
from backendai.gates.appproxy.file_relay import FileRelay
from backendai.gates.appproxy.guard import AppGuard
from backendai.gates.appproxy.handler import AppHandler
from backendai.gates.appproxy.headers import keep_bytes
from backendai.gates.appproxy.relay import Relay, waits_to_send

logger = logging.getLogger(__name__)

_BACKLOG = 512
_BUFFER = 64 * 1024
_LARGEST_HEADER = 32 * 1024  # some apps keep a lot in cookies
_STOP_SECONDS = 3.0


def _started_answer(door: AppHandler) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    """Return the handler for requests whose headers have arrived."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if isinstance(request.protocol, LimitedHandler):
            request.protocol.begin()
        with counting(request) as outcome:
            outcome.response = response = await door.handle(request)
        if waits_to_send(request):  # it may leave the body out, and what it sends next would be taken for that
            response.force_close()
        return response

    return handle


@asynccontextmanager
async def serving(listener: socket.socket) -> AsyncIterator[None]:
    """Serve apps on the listening socket for the length of the context."""
    keep_bytes()
    guard, relay, file_relay = AppGuard(), Relay(), FileRelay()
    nodes = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
    port = listener.getsockname()[1]
    endpoints = Endpoints(usual_name(port), settings.DATA_DIR / f"endpoints-{port}.json")
    endpoint_door = EndpointHandler(endpoints)
    door = AppHandler(guard, relay, nodes, FileHandler(guard, file_relay), endpoint_door)
    server = LimitedServer(
        _started_answer(door),
        handler_cancellation=True,
        access_log=None,
        logger=http_logger(__name__),
        auto_decompress=False,
        read_bufsize=_BUFFER,
        max_field_size=_LARGEST_HEADER,
        max_line_size=_LARGEST_HEADER,
    )
    runner = web.ServerRunner(server, shutdown_timeout=_STOP_SECONDS)
    await runner.setup()
    site = web.SockSite(runner, listener, backlog=_BACKLOG)
    watcher = asyncio.create_task(guard.watch())
    await endpoints.open()
    try:
        await site.start()
        yield
        await site.stop()
        await endpoint_door.finish(settings.SERVING_GRACE)
    finally:
        watcher.cancel()
        guard.close()
        await runner.cleanup()
        await endpoints.close()
        relay.close()
        await file_relay.close()
        await nodes.close()
        await asyncio.to_thread(meter.close)


async def serve(host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    async with serving(listener):
        logger.info("apps are served on %s:%s", host, port)
        await stop.wait()
