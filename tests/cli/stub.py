"""A portal that answers what a test has prepared, and keeps what it was asked."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Stub:
    """``answers``: status, body and headers, one after the other, the last one again and again; status 0 hangs up."""

    answers: list[tuple[int, Any, dict[str, str]]]
    url: str = ""
    asked: list[Asked] = field(default_factory=list)


@contextmanager
def stub_portal(*answers: tuple[Any, ...], tls: ssl.SSLContext | None = None) -> Iterator[Stub]:
    stub = Stub([(status, body, dict(*headers)) for status, body, *headers in answers])

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {key.lower(): value for key, value in self.headers.items()}
            stub.asked.append(Asked(self.command, self.path, headers, json.loads(raw) if raw else None))
            status, body, more = stub.answers[0] if len(stub.answers) == 1 else stub.answers.pop(0)
            if status == 0:
                self.close_connection = True
                return
            content = b"" if body is None else json.dumps(body).encode()
            self.send_response(status)
            for key, value in {**more, "Content-Length": str(len(content)), "Content-Type": "application/json"}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        stub.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield stub
        finally:
            server.shutdown()
