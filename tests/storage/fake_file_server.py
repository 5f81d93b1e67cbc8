"""A small file server over real HTTP that keeps folders in memory, checks tickets, and can be told to misbehave."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from django.conf import settings

from backendai.base.paths.path_texts import bytes_of
from backendai.base.wire.folder_tickets import FolderTicketRefused, read_folder_ticket
from backendai.base.wire.tickets import public_key_of
from backendai.domain.storage import file_server
from backendai.domain.storage.models import StorageHost
from backendai.files.entries.listing import shown
from tests.patience import patient

NOBODY = str(UUID(int=0))


class FakeFileServer:
    """``folders`` by id; ``asked`` holds (method, path, version, rights) of every request. ``hangs``: it answers
    nothing; ``refuses``: (status, code) of every answer but the host's; ``clones_at_once``: a clone is ready when it is
    ordered."""

    def __init__(self, name: str = "local") -> None:
        self.name = name
        self.address = ""
        self.folders: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str, int, str]] = []
        self.bodies: list[Any] = []
        self.refuses: tuple[int, str] | None = None
        self.clones_at_once = True
        self.deletes_at_once = True
        self.taken: set[str] = set()  # paths, and items of the trash, in whose place something is
        self.fault = ""
        self.quota_mode = "measured"
        self.measured: list[dict[str, Any]] = []
        self.resume = threading.Event()
        self.resume.set()
        self._lock = threading.Lock()

    @property
    def hangs(self) -> bool:
        return not self.resume.is_set()

    @hangs.setter
    def hangs(self, value: bool) -> None:
        (self.resume.clear if value else self.resume.set)()

    def orders(self, method: str) -> list[str]:
        """The paths that were asked with this method."""
        return [path for verb, path, *_ in self.asked if verb == method]

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any, token: str) -> tuple[int, Any]:
        self.resume.wait(patient(10))
        parts = path.strip("/").split("/")
        try:
            ticket = read_folder_ticket(public_key_of(settings.TICKET_KEY), token, host=self.name, now=time.time())
        except FolderTicketRefused as error:
            return 401, {"code": "ticket-refused", "message": str(error)}
        with self._lock:
            self.asked.append((method, path, ticket.version, ticket.rights))
            self.bodies.append(body)
            if parts[:2] == ["v1", "host"]:
                return self._host(parts[2:], query)
            if self.refuses:
                status, code = self.refuses
                return status, {"code": code, "message": f"It is {code}."}
            if parts[2] != str(ticket.folder_id):
                return 401, {"code": "ticket-refused", "message": "The ticket is for another folder."}
            if ticket.rights == "manage":
                return self._manage(method, parts[2], parts[3:], body, ticket.version)
            return self._files(method, parts[2], parts[3:], query, body)

    def _host(self, rest: list[str], query: dict[str, list[str]]) -> tuple[int, Any]:
        if rest == ["folders"]:
            ids = sorted(pk for pk in self.folders if pk > query.get("after", [""])[0])
            page = [{"id": pk} | {name: self.folders[pk][name] for name in ("version", "meta")} for pk in ids[:2]]
            return 200, {"folders": page, "next": ids[1] if len(ids) > 2 else None}
        sizes = {"total_bytes": 10**12, "free_bytes": 4 * 10**11}
        return 200, {
            "host": self.name,
            "quota_mode": self.quota_mode,
            "fault": self.fault,
            "measured": self.measured,
        } | sizes

    def _manage(self, method: str, pk: str, rest: list[str], body: Any, version: int) -> tuple[int, Any]:
        folder = self.folders.get(pk)
        if method == "GET":
            shown = ("state", "version", "size", "progress", "error")
            found = {name: folder[name] for name in shown if name in folder} if folder else {"state": "absent"}
            return 200, found
        if folder and version < folder["version"] + (method == "DELETE"):
            return 409, {"code": "stale-version", "message": "The order is too old.", "version": folder["version"]}
        if method == "DELETE":
            if folder and self.deletes_at_once:
                del self.folders[pk]
            elif folder:
                folder["state"] = "deleting"
            return 202, {}
        if folder is None:
            self.folders[pk] = folder = {"state": "ready", "version": version, "meta": {}, "files": {}}
        folder["version"] = version
        if rest == ["clones"]:
            folder |= {"state": "ready" if self.clones_at_once else "cloning", "source": body["source"]}
        elif rest == ["measurements"]:
            folder["size"] = {"bytes": folder.get("bytes", 0), "files": len(folder["files"]), "at": time.time()}
        elif rest == ["limit"]:
            folder["limit"] = body["bytes"]
        elif rest == ["link"]:
            folder["linked"] = body["path"]
        else:
            folder["meta"] = body["meta"]
            folder |= {"limit": body["limit"]} if "limit" in body else {}
        return 202, {}

    def _files(self, method: str, pk: str, rest: list[str], query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        folder = self.folders.get(pk)
        if folder is None:
            return 404, {"code": "no-path", "message": "There is no such path."}
        files = folder["files"]
        if rest == ["entries"]:
            rows = [
                shown(os.fsencode(name)) | {"kind": kind, "size": 0, "mtime": 1.0}
                for name, kind in sorted(files.items())
            ]
            told = {"entries": rows, "next": None, "total": len(rows), "sorted": True, "as_of": 1.0}
            return 200, {**told, "folder_size": folder.get("size")}
        if rest == ["entry"]:
            return 200, shown(bytes_of(query["path"][0])) | {"kind": "file", "size": 0, "mtime": 1.0}
        if rest == ["trash"]:
            return (200, {"items": [], "next": None}) if method == "GET" else (200, {})
        if rest[0] == "moves" or rest[-1] == "restore":
            name = body["target"] if rest[0] == "moves" else rest[1]
            if name in self.taken and not (body["overwrite"] or body["keep_both"]):
                return 409, {"code": "exists", "message": "There is something at this path already."}
            return 200, {"path": f"{name} (2)" if name in self.taken and body["keep_both"] else name}
        if rest[0] == "operations":
            progress = {"bytes": 0, "files": 0, "total_bytes": None, "total_files": None}
            return 200, {"operation": rest[1], "state": "running", "progress": progress}
        if rest[0] == "directories":
            if body["path"] in files:
                return 409, {"code": "exists", "message": f"{body['path']} exists."}
            files[body["path"]] = "directory"
            return 201, {"path": body["path"]}
        return 200, {"path": body["target"]} if rest[0] == "copies" else {"items": []}


@contextmanager
def serving(server: FakeFileServer) -> Iterator[FakeFileServer]:
    """Serve it on this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            address = urlsplit(self.path)
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            query, body = parse_qs(address.query), json.loads(content) if content else None
            status, answer = server.answer(self.command, address.path, query, body, token)
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = do_DELETE = handle_any

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    server.address = f"http://127.0.0.1:{http.server_port}"
    try:
        yield server
    finally:
        server.resume.set()
        http.shutdown()
        http.server_close()
        file_server._lines.pop(server.address, None)


def make_host(server: FakeFileServer, **over: object) -> StorageHost:
    """Return the storage host of a served file server; the default one unless ``over`` says otherwise."""
    values = {"name": server.name, "address": server.address, "is_default": True} | over
    host: StorageHost = StorageHost.objects.create(**values)
    return host
