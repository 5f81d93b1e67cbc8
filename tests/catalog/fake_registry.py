"""A small registry over real HTTP: manifests and their end, indexes, tokens, pages, redirects, and bad answers."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
ACCOUNT = ("robot", "correct horse")


class FakeRegistry:
    """Fill it before it is asked. ``wants_token``: everything needs a token, which the account gets. ``asked`` holds
    (path, Authorization) of every request, ``deleted`` what a DELETE took out; ``to_delete`` is another answer to
    that."""

    def __init__(self) -> None:
        self.tags: dict[str, dict[str, str]] = {}
        self.files: dict[str, tuple[str, bytes]] = {}
        self.wants_token = False
        self.moved: dict[str, str] = {}
        self.page = 2
        self.address = ""
        self.asked: list[tuple[str, str]] = []
        self.deleted: list[str] = []
        self.to_delete: tuple[int, Any] | None = None

    def put(self, kind: str, content: Any) -> str:
        """Keep something and return its digest."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        self.files[digest] = (kind, body)
        return digest

    def image(self, labels: dict[str, str], architecture: str = "amd64", size: int = 1000) -> str:
        """Keep an image and return the digest of its manifest."""
        config = self.put("application/json", {"architecture": architecture, "config": {"Labels": labels}})
        return self.put(MANIFEST, {"config": {"digest": config}, "layers": [{"size": size}, {"size": 24}]})

    def index(self, *digests: tuple[str, str]) -> str:
        """Keep an index of (architecture, digest) and return its digest."""
        manifests = [{"digest": d, "platform": {"os": "linux", "architecture": a}} for a, d in digests]
        return self.put(INDEX, {"manifests": manifests})

    def tag(self, repository: str, tag: str, digest: str) -> None:
        """Let a tag stand for a manifest."""
        self.tags.setdefault(repository, {})[tag] = digest


@contextmanager
def serving(registry: FakeRegistry) -> Iterator[FakeRegistry]:
    """Serve it on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            authorization = self.headers["Authorization"] or ""
            registry.asked.append((self.path, authorization))
            _answer(self, registry, authorization)

        do_HEAD = do_DELETE = do_GET

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.address = f"127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()


def _answer(handler: BaseHTTPRequestHandler, registry: FakeRegistry, authorization: str) -> None:
    parts = urlsplit(handler.path)
    if parts.path == "/token":
        given = base64.b64encode(":".join(ACCOUNT).encode()).decode()
        known = authorization == f"Basic {given}"
        return _send(handler, 200 if known else 401, {"token": "of-" + parse_qs(parts.query)["scope"][0]})
    if registry.wants_token and not authorization.startswith("Bearer of-"):
        realm = f'Bearer realm="http://{registry.address}/token",service="here"'
        return _send(handler, 401, {}, {"WWW-Authenticate": realm})
    if parts.path == "/v2/":
        return _send(handler, 200, {})
    if parts.path in registry.moved:
        return _send(handler, 307, {}, {"Location": registry.moved[parts.path]})
    return _content(handler, registry, parts.path, parse_qs(parts.query))


def _content(handler: BaseHTTPRequestHandler, registry: FakeRegistry, path: str, query: dict[str, list[str]]) -> None:
    if path == "/v2/_catalog":
        return _page(handler, registry, path, query, "repositories", sorted(registry.tags))
    if path.endswith("/tags/list"):
        repository = path.removeprefix("/v2/").removesuffix("/tags/list")
        return _page(handler, registry, path, query, "tags", sorted(registry.tags.get(repository, {})))
    repository, _, name = path.removeprefix("/v2/").replace("/blobs/", "/manifests/").partition("/manifests/")
    if handler.command == "DELETE":
        return _delete(handler, registry, repository, name)
    digest = registry.tags.get(repository, {}).get(name, name)
    kind, body = registry.files.get(digest, ("", b""))
    headers = {"Content-Type": kind or "application/json", "Docker-Content-Digest": digest}
    return _send(handler, 200 if kind else 404, body or {}, headers)


def _delete(handler: BaseHTTPRequestHandler, registry: FakeRegistry, repository: str, name: str) -> None:
    """Take out a manifest by its digest, with every tag that stands for it."""
    if registry.to_delete is not None:
        return _send(handler, *registry.to_delete)
    tags = registry.tags.get(repository, {})
    if not name.startswith("sha256:") or name not in tags.values():
        return _send(handler, 404 if name.startswith("sha256:") else 405, {})
    registry.tags[repository] = {tag: digest for tag, digest in tags.items() if digest != name}
    registry.deleted.append(f"{repository}@{name}")
    return _send(handler, 202, {})


def _page(
    handler: BaseHTTPRequestHandler,
    registry: FakeRegistry,
    path: str,
    query: dict[str, list[str]],
    key: str,
    names: list[str],
) -> None:
    start = int(query.get("from", ["0"])[0])
    more = start + registry.page < len(names)
    link = {"Link": f'<{path}?from={start + registry.page}>; rel="next"'} if more else {}
    _send(handler, 200, {key: names[start : start + registry.page]}, link)


def _send(handler: BaseHTTPRequestHandler, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    handler.send_response(status)
    for name, value in (headers or {}).items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)
