"""The portal in memory behind a real socket, to try the agent's HTTP client and its processes against."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit
from uuid import UUID, uuid4

from backendai.agent.portal.client import PortalRefused, PortalUnreachable
from backendai.base.wire.broker.messages import BrokerDown, BrokerUp
from backendai.base.wire.bundles import BundleDown, BundleUp
from backendai.base.wire.messages import JoinDown, JoinUp, KernelReport, SyncUp
from backendai.base.wire.node_jobs import NodeJobReport
from tests.agent.portal import DEPLOYMENT, FakePortal

JOIN_TOKEN, NODE_TOKEN = "join-me", "node-secret"


class HttpPortal(FakePortal):
    """Serves itself on a free port of the loopback; ``close`` ends that."""

    def __init__(self, public_key: str = "", broker_url: str = "") -> None:
        super().__init__(public_key)
        self.broker_url, self.broker_user, self.broken_secret = broker_url, "", ""
        self.on_broker: Callable[[str], None] = lambda digest: None
        self.joins: list[JoinUp] = []
        self.bundles: list[BundleUp] = []
        portal = self

        class Handler(_Handler):
            served = portal

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    served: ClassVar[HttpPortal]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PUT = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            status, answer = self._answer(urlsplit(self.path).path.removeprefix("/node/v1"), body)
        except PortalRefused as error:
            status, answer = error.status, '{"code": "refused"}'
        except PortalUnreachable:
            status, answer = 503, ""
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer.encode())

    def _answer(self, path: str, body: bytes) -> tuple[int, str]:
        portal = self.served
        if path == "/join":
            return self._join(JoinUp.model_validate_json(body))
        if self.headers.get("Authorization") != f"Node {NODE_TOKEN}":
            return 401, "{}"
        if path == "/broker":
            portal.on_broker(BrokerUp.model_validate_json(body).digest)
            return 200, BrokerDown(url=portal.broker_url, username=portal.broker_user).model_dump_json()
        if path == "/sync":
            return 200, portal.sync(SyncUp.model_validate_json(body)).model_dump_json()
        if path == "/bundle":
            return 200, self._bundle(BundleUp.model_validate_json(body)).model_dump_json()
        if path.startswith("/jobs/"):
            return self._job(*path.split("/")[2:], body=body)
        _, _, kernel_id, *rest = path.split("/")
        if rest == ["registry"]:
            return 200, portal.broken_secret or portal.registry_access(UUID(kernel_id)).model_dump_json()
        if rest == ["report"]:
            return 200, json.dumps({"applied": portal.report(KernelReport.model_validate_json(body))})
        if rest == ["log"]:
            query = parse_qs(urlsplit(self.path).query)
            portal.put_log(UUID(kernel_id), int(query["generation"][0]), body, truncated=query["truncated"] == ["1"])
            return 204, ""
        spec = portal.fetch_spec(UUID(kernel_id))
        return (200, spec.model_dump_json()) if spec else (404, "{}")

    def _bundle(self, up: BundleUp) -> BundleDown:
        portal = self.served
        portal.bundles.append(up)
        for log in up.logs:
            portal.put_log(log.kernel_id, log.generation, log.content, truncated=log.truncated)
        applied = [portal.report(one) if one.kernel_id in portal.specs else None for one in up.reports]
        specs = [spec for spec in map(portal.fetch_spec, up.specs) if spec]
        return BundleDown(specs=specs, kept=[True] * len(up.logs), applied=applied)

    def _job(self, kind: str, job_id: str, *rest: str, body: bytes) -> tuple[int, str]:
        if rest == ("report",):
            return 200, json.dumps({"wanted": self.served.report_job(NodeJobReport.model_validate_json(body))})
        spec = self.served.fetch_job(kind, UUID(job_id))
        return (200, spec.model_dump_json()) if spec else (404, "{}")

    def _join(self, up: JoinUp) -> tuple[int, str]:
        if up.token != JOIN_TOKEN:
            return 403, '{"detail": "the join token is not valid"}'
        self.served.joins.append(up)
        down = JoinDown(
            agent_id=uuid4(),
            name=up.name,
            token=NODE_TOKEN,
            deployment=DEPLOYMENT,
            public_key=self.served.public_key,
        )
        return 201, down.model_dump_json()
