"""A registry that takes images: just what a container engine asks of one when it pushes, with one account."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

ACCOUNT = ("robot", "correct horse")
_UPLOAD = re.compile(r"/v2/(.+)/blobs/uploads/([0-9a-f-]*)\Z")
_BLOB = re.compile(r"/v2/(.+)/blobs/(sha256:[0-9a-f]+)\Z")
_MANIFEST = re.compile(r"/v2/(.+)/manifests/(.+)\Z")


class PushRegistry:
    """``manifests`` by repository and tag, ``blobs`` by digest."""

    def __init__(self) -> None:
        self.address = ""
        self.blobs: dict[str, bytes] = {}
        self.uploads: dict[str, bytes] = {}
        self.manifests: dict[tuple[str, str], bytes] = {}


@contextmanager
def taking(registry: PushRegistry) -> Iterator[PushRegistry]:
    """Serve it on this machine."""
    known = base64.b64encode(":".join(ACCOUNT).encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self._body()
            if self.headers["Authorization"] != f"Basic {known}":
                return self._send(401, {"WWW-Authenticate": 'Basic realm="here"'})
            return self._send(*_act(registry, self.command, self.path, body))

        do_GET = do_HEAD = do_POST = do_PATCH = do_PUT = answer

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def _send(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in ({"Content-Length": "0"} | headers).items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.address = f"127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()


def _act(registry: PushRegistry, method: str, address: str, body: bytes) -> tuple[int, dict[str, str]]:
    path, query = urlsplit(address).path, parse_qs(urlsplit(address).query)
    if found := _UPLOAD.match(path):
        key = found[2] or str(uuid4())
        registry.uploads[key] = registry.uploads.get(key, b"") + body
        if method == "PUT":
            digest = query["digest"][0]
            registry.blobs[digest] = registry.uploads.pop(key)
            return 201, {"Docker-Content-Digest": digest}
        end = max(len(registry.uploads[key]) - 1, 0)
        return 202, {"Location": f"/v2/{found[1]}/blobs/uploads/{key}", "Range": f"0-{end}", "Docker-Upload-UUID": key}
    if found := _BLOB.match(path):
        blob = registry.blobs.get(found[2])
        return (
            (404, {}) if blob is None else (200, {"Content-Length": str(len(blob)), "Docker-Content-Digest": found[2]})
        )
    if (found := _MANIFEST.match(path)) and method == "PUT":
        registry.manifests[found[1], found[2]] = body
        return 201, {"Docker-Content-Digest": f"sha256:{hashlib.sha256(body).hexdigest()}"}
    return (404, {}) if found else (200, {})
