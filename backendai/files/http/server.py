"""The application of a file server, and its process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable

from aiohttp import web

from backendai.base.process.http_log import http_logger
from backendai.base.process.metrics_access import PATH, answering
from backendai.files.config import FilesSettings
from backendai.files.folders import operations
from backendai.files.folders.jobs import Jobs
from backendai.files.hosts import Host
from backendai.files.http import archives as archive_views
from backendai.files.http import contents as content_views
from backendai.files.http import entries as entry_views
from backendai.files.http import manage as manage_views
from backendai.files.http import uploads as upload_views
from backendai.files.http.counts import count_requests, registry
from backendai.files.http.serving import SERVER, Server, errors_as_json

logger = logging.getLogger(__name__)

_LARGEST_BODY = 2 * 2**20  # bytes of JSON; files are streamed
_STOP_SECONDS = 5.0
_BUFFER = 2**20  # read buffer; with aiohttp's 64 KiB an upload is paused and resumed all the time
_OWN_FILES_ONLY = 0o022


def create_server(settings: FilesSettings) -> Server:
    """Return the state that all requests share."""
    _, deployment = settings.keys()
    return Server(settings, {name: Host(name, path, deployment=deployment) for name, path in settings.hosts.items()})


def create_app(server: Server) -> web.Application:
    """Return the aiohttp application."""
    app = web.Application(middlewares=[count_requests, errors_as_json], client_max_size=_LARGEST_BODY)
    app[SERVER] = server
    app[manage_views.JOBS] = jobs = Jobs(server)
    server.measure, server.measure_soon = jobs.measure, jobs.measure_soon
    app[operations.OPERATIONS] = operations.Operations()
    app[upload_views.TURNS] = upload_views.Turns()
    app.cleanup_ctx.append(_keep_up)
    for views in (entry_views, content_views, upload_views, archive_views, manage_views, operations):
        views.add_routes(app.router)
    app.router.add_get("/health", _health)
    app.router.add_get(PATH, answering(registry, server.settings.scrapers))
    return app


async def serve(settings: FilesSettings, on_ready: Callable[[], None] = lambda: None) -> None:
    """Serve until SIGTERM or SIGINT."""
    os.umask(_OWN_FILES_ONLY)
    server = create_server(settings)
    # With handler_cancellation, a client's disconnection ends a search and deletes an unfinished upload.
    app, log = create_app(server), http_logger(__name__)
    runner = web.AppRunner(app, access_log=None, logger=log, handler_cancellation=True, read_bufsize=_BUFFER)
    await runner.setup()
    await web.TCPSite(runner, settings.address, settings.port, shutdown_timeout=_STOP_SECONDS).start()
    logger.info("serving %s on %s:%s", ", ".join(server.hosts), settings.address, settings.port)
    on_ready()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()
    await runner.cleanup()


async def _keep_up(app: web.Application) -> AsyncIterator[None]:
    """Continue interrupted jobs while the application runs."""
    server, jobs = app[SERVER], app[manage_views.JOBS]
    loops = [asyncio.create_task(jobs.keep_up(host)) for host in server.hosts.values()]
    yield
    for task in [*loops, *server.tasks]:
        task.cancel()
    await asyncio.gather(*loops, return_exceptions=True)


async def _health(request: web.Request) -> web.Response:
    """Return whether each host has its marker."""
    hosts = request.app[SERVER].hosts.values()
    faults = {host.name: await host.fault() for host in hosts}
    told = [{"host": name, "ok": not fault, "fault": fault} for name, fault in faults.items()]
    return web.json_response({"host": ",".join(faults), "ok": not any(faults.values()), "hosts": told})
