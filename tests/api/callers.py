"""People calling the API with a bearer token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from django.test import Client

from backendai.domain.accounts.models import User
from backendai.domain.accounts.services import create_token
from tests.api.openapi import check_answer

SESSIONS = "/api/v1/sessions/"
LAUNCH = {"name": "train-1", "type": "interactive", "image": "python", "resources": {"cpu": 1, "mem": "512m"}}


class DocumentedClient(Client):
    """A client that fails when an answer is another one than the OpenAPI document says."""

    def request(self, **request: Any) -> Any:
        answer = super().request(**request)
        check_answer(answer)
        return answer


class Caller:
    """One person's script: every request carries their token, and answers are parsed."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.token = create_token(user, "tests")[1]
        self._client = DocumentedClient(headers={"Authorization": f"Bearer {self.token}"})

    def get(self, path: str, headers: dict[str, str] | None = None, **query: Any) -> Any:
        return self._client.get(path, query, headers=headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        content = body if isinstance(body, str | bytes) else json.dumps({} if body is None else body)
        return self._client.post(path, content, content_type="application/json", headers=headers)

    def patch(self, path: str, body: Any = None, **headers: str) -> Any:
        content = json.dumps({} if body is None else body)
        return self._client.patch(path, content, content_type="application/json", headers=headers)

    def put(self, path: str, body: Any = None) -> Any:
        return self._client.put(path, "" if body is None else json.dumps(body), content_type="application/json")

    def delete(self, path: str) -> Any:
        return self._client.delete(path)


@contextmanager
def log_gateway(status: int, content: bytes) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A node's gateway that answers every request the same; yields its address and the (path, Authorization) it saw."""
    seen: list[tuple[str, str]] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers["Authorization"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            """Refuse as an agent of an older version does, after reading the body."""
            if "chunked" in self.headers.get("Transfer-Encoding", ""):
                while size := int(self.rfile.readline(), 16):
                    self.rfile.read(size + 2)
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_error(404)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
