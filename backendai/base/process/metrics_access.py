"""``/metrics`` of every process: who may read it, and the ways to answer."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from aiohttp import web
from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest

from backendai.base.core.errors import UserError

logger = logging.getLogger(__name__)

PATH = "/metrics"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
LEAST_TOKEN = 20
_PATIENCE_SECONDS = 10.0
_MOST_BESIDE = 64  # processes of one kind that count on ports of their own

disable_created_metrics()  # a second series for each, that nobody asks for


@dataclass(frozen=True, slots=True)
class Scrapers:
    """Who may read metrics: whoever has the token, or comes from one of the networks."""

    token: str = ""
    networks: tuple[str, ...] = ()

    def allows(self, authorization: str, address: str) -> bool:
        """Return whether a request may read them, by its header and the visitor's address (empty: unknown)."""
        kind, _, token = authorization.partition(" ")
        if self.token and kind.lower() == "bearer":
            return hmac.compare_digest(token.strip().encode(), self.token.encode())
        try:
            visitor = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(visitor in ipaddress.ip_network(network) for network in self.networks)


NOBODY = Scrapers()


def read_scrapers(told: Mapping[str, str]) -> Scrapers:
    """Return who may read the metrics of an agent or a file server. Raises UserError."""
    token = told.get("BACKENDAI_METRICS_TOKEN", "")
    if token and len(token) < LEAST_TOKEN:
        text = "BACKENDAI_METRICS_TOKEN is too short: use at least {least} characters."
        raise UserError(text, least=LEAST_TOKEN, field="BACKENDAI_METRICS_TOKEN")
    networks = [word.strip() for word in told.get("BACKENDAI_METRICS_NETWORKS", "").split(",") if word.strip()]
    for network in networks:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            text = "BACKENDAI_METRICS_NETWORKS: {network} is not a network: use one such as 10.0.0.0/8."
            raise UserError(text, network=repr(network), field="BACKENDAI_METRICS_NETWORKS") from error
    return Scrapers(token, tuple(networks))


def answering(registry: CollectorRegistry, scrapers: Scrapers) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return a handler of aiohttp: the metrics, or 404."""

    async def answer(request: web.Request) -> web.Response:
        return answer_to(request, registry, scrapers, request.remote or "")

    return answer


def answer_to(request: web.BaseRequest, registry: CollectorRegistry, scrapers: Scrapers, address: str) -> web.Response:
    """Return the metrics for a visitor with this address, or 404."""
    if not scrapers.allows(request.headers.get("Authorization", ""), address):
        return web.Response(status=404, text="Not found")
    return web.Response(body=generate_latest(registry), headers={"Content-Type": TEXT})


def serve_apart(told: str, registry: CollectorRegistry, scrapers: Scrapers) -> ThreadingHTTPServer | None:
    """Serve the metrics of a process without an HTTP server on ``address:port``, from a thread; nothing if it is empty.

    Where another process has the port, the next free one. A fault is logged: metrics keep no process from its work.
    """
    address, _, port = told.rpartition(":")
    if not told:
        return None
    for number in range(_MOST_BESIDE):
        try:
            server = ThreadingHTTPServer((address.strip("[]"), int(port) + number), _handler_for(registry, scrapers))
        except OSError as error:
            fault = error
            continue
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
        logger.info("metrics are served on %s:%s", *server.server_address[:2])
        return server
    logger.error("metrics are not served on %s: %s", told, fault)
    return None


def _handler_for(registry: CollectorRegistry, scrapers: Scrapers) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE_SECONDS

        def do_GET(self) -> None:
            is_allowed = scrapers.allows(self.headers.get("Authorization", ""), self.client_address[0])
            is_found = is_allowed and self.path.partition("?")[0] == PATH
            body = generate_latest(registry) if is_found else b"Not found"
            self.send_response(200 if is_found else 404)
            self.send_header("Content-Type", TEXT)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: a line for every scrape is not news."""

    return Handler
