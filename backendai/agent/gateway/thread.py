"""The gateway's thread, and its listening socket."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar
from urllib.parse import urlsplit

import uvloop
from aiohttp import web

from backendai.agent.gateway.server import Gateway
from backendai.agent.settings.config import NodeSettings
from backendai.agent.settings.credentials import load_address, save_address
from backendai.base.core.errors import UserError
from backendai.base.process.http_log import http_logger
from backendai.base.process.listeners import in_url
from backendai.base.process.switch_interval import shorten_turns

logger = logging.getLogger(__name__)

_STOP_SECONDS = 5.0
_LOOPBACK = "127.0.0.1"


T = TypeVar("T")


class GatewayThread:
    """Runs the gateway on an event loop in its own thread. Other threads reach that loop only through ``stop`` and
    ``run``. ``grace``: seconds for open requests to endpoints during ``stop``."""

    def __init__(self, gateway: Gateway, listener: socket.socket, grace: float) -> None:
        self._gateway, self._listener, self._grace = gateway, listener, grace
        self._loop = uvloop.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)

    def start(self) -> None:
        """Start the thread; returns when the gateway accepts connections. Raises the error that prevents it."""
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error

    def run(self, work: Coroutine[Any, Any, T], *, timeout: float) -> T:
        """Run the coroutine on the gateway's loop and return its result. Raises TimeoutError, and the coroutine's
        exceptions."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def stop(self) -> None:
        """Close the websockets (code 1012), then the server; returns when the thread has ended."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(self._grace + _STOP_SECONDS)

    def _run(self) -> None:
        shorten_turns()
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except Exception as error:
            self._error = error
            logger.exception("the gateway failed")
        finally:
            self._ready.set()
            self._loop.close()

    async def _serve(self) -> None:
        # Without handler_cancellation the stream of a silent log would stay open after its client disconnected.
        app, log = self._gateway.application(), http_logger(__name__)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, logger=log)
        await runner.setup()
        try:
            await web.SockSite(runner, self._listener, backlog=256).start()
            self._ready.set()
            await self._stop.wait()
            await self._gateway.close_websockets(self._grace)
        finally:
            await runner.cleanup()


def listen(settings: NodeSettings, portal_url: str) -> socket.socket:
    """Return a listening socket: at the configured address, else the last one, else at a free port. Raises
    UserError if nothing can listen there."""
    kept_host, kept_port = load_address(settings.data)
    host = settings.gateway_host or _address_towards(portal_url) or kept_host or _LOOPBACK
    wishes = [settings.gateway_port] if settings.gateway_port else [kept_port if kept_host == host else 0, 0]
    listener = _bind(host, wishes)
    save_address(settings.data, host, listener.getsockname()[1])
    return listener


def public_url(settings: NodeSettings, listener: socket.socket, portal_url: str) -> str:
    """Return the URL at which the portal reaches this gateway."""
    if settings.gateway_url:
        return settings.gateway_url
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = _address_towards(portal_url) or _LOOPBACK
    return f"http://{in_url(host)}:{port}"


def _bind(host: str, ports: list[int]) -> socket.socket:
    for number, port in enumerate(ports):
        try:
            return socket.create_server((host, port), family=_family(host), backlog=256)
        except OSError as error:
            if number == len(ports) - 1:
                raise UserError(
                    "The gateway cannot listen on {address}, port {port}: {reason}. Set BACKENDAI_GATEWAY_HOST to an "
                    "address of this machine, and BACKENDAI_GATEWAY_PORT to a free port.",
                    address=host,
                    port=port,
                    reason=error.strerror or str(error),
                ) from error
            logger.warning("port %s of %s is taken: taking another", port, host)
    raise ValueError("no port to try")


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _address_towards(portal_url: str) -> str:
    """Return this machine's address on the route to the portal; "" if the portal's name cannot be resolved."""
    parts = urlsplit(portal_url)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((parts.hostname or _LOOPBACK, parts.port or 80))  # selects a route, sends no packet
            return str(probe.getsockname()[0])
    except OSError:
        return ""
