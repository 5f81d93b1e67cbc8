"""A small Kubernetes API with a node in it, for what a real one does not do when it is asked to: be busy, forget, break
off a watch, lose a node. What it does otherwise, tests on a real cluster hold it to."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

NODE = {
    "metadata": {"name": "node-1", "labels": {"pool": "a"}},
    "spec": {},
    "status": {
        "allocatable": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2"},
        "conditions": [{"type": "Ready", "status": "True"}],
        "images": [{"names": ["local/backendai-test:tiny"], "sizeBytes": 2_000_000}],
    },
}


@dataclass
class Cluster:
    """``faults`` holds answers (status, headers, body) that come before true ones; ``runs``: the node starts pods."""

    runs: bool = True
    answers_deletes: bool = True
    forbidden: set[str] = field(default_factory=set)  # kinds that answer 403
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    faults: list[tuple[int, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[tuple[str, str]] = field(default_factory=list)  # of what was to be created
    version: int = 100
    watches: list[queue.Queue[bytes | None]] = field(default_factory=list)
    denied: set[tuple[str, str]] = field(default_factory=set)  # verbs and kinds, as reviews of access say
    delay: float = 0.0
    nodes: list[dict[str, Any]] = field(default_factory=lambda: [NODE])
    lock: threading.RLock = field(default_factory=threading.RLock)

    def pods(self) -> list[dict[str, Any]]:
        with self.lock:
            return [one for (kind, _), one in self.objects.items() if kind == "pods"]

    def change(self, name: str, **status: Any) -> None:
        """Set parts of a pod's status, as its node would."""
        with self.lock:
            pod = self.objects["pods", name]
            pod["status"].update(status)
            self.tell("MODIFIED", pod)

    def end(self, name: str, **terminated: Any) -> None:
        self.change(name, phase="Failed", containerStatuses=[{"name": "main", "state": {"terminated": terminated}}])

    def tell(self, kind: str, one: dict[str, Any]) -> None:
        self.version += 1
        one["metadata"]["resourceVersion"] = str(self.version)
        line = json.dumps({"type": kind, "object": one}).encode() + b"\n"
        for watch in self.watches:
            watch.put(line)

    def cut_watches(self, last: dict[str, Any] | None = None) -> None:
        """Break off every watch, after this event."""
        with self.lock:
            for watch in self.watches:
                if last is not None:
                    watch.put(json.dumps(last).encode() + b"\n")
                watch.put(None)

    def create(self, kind: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        name = body["metadata"]["name"]
        if (kind, name) in self.objects:
            return _failure(409, "AlreadyExists", f'{kind} "{name}" already exists')
        body["metadata"] |= {"uid": str(uuid4()), "creationTimestamp": "2026-11-23T10:00:00Z"}
        if kind == "pods":
            body["status"] = {"phase": "Pending"}
            if self.runs:
                body["spec"]["nodeName"] = "node-1"
                body["status"] = {
                    "phase": "Running",
                    "podIP": "10.0.0.7",
                    "containerStatuses": [{"name": "main", "state": {"running": {}}}],
                }
        self.objects[kind, name] = body
        self.tell("ADDED", body)
        return 201, body

    def delete(self, kind: str, name: str, options: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        one = self.objects.get((kind, name))
        if one is None:
            return _failure(404, "NotFound", f'{kind} "{name}" not found')
        wanted = (options.get("preconditions") or {}).get("uid")
        if wanted and wanted != one["metadata"]["uid"]:
            return _failure(409, "Conflict", "the UID in the precondition does not match")
        if kind == "pods":
            one["metadata"].setdefault("deletionTimestamp", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
            one["metadata"]["deletionGracePeriodSeconds"] = options.get("gracePeriodSeconds", 30)
            if self.answers_deletes and "running" in _state(one):
                one["status"]["containerStatuses"][0]["state"] = {"terminated": {"exitCode": 143, "reason": "Error"}}
            self.tell("MODIFIED", one)
        self.collect(kind, name)
        return 200, one

    def collect(self, kind: str, name: str) -> None:
        one = self.objects[kind, name]
        told = one["metadata"]
        may_go = kind != "pods"
        if told.get("deletionTimestamp") and not may_go:
            may_go = "running" not in _state(one) or told["deletionGracePeriodSeconds"] == 0
        if may_go and not one["metadata"].get("finalizers"):
            del self.objects[kind, name]
            self.tell("DELETED", one)

    def patch(self, kind: str, name: str, changes: Any) -> tuple[int, dict[str, Any]]:
        one = self.objects.get((kind, name))
        if one is None:
            return _failure(404, "NotFound", f'{kind} "{name}" not found')
        if isinstance(changes, dict):
            one |= changes
            return 200, one
        for change in changes:
            *folders, last = [part.replace("~1", "/") for part in change["path"].split("/")[1:]]
            place = one
            for folder in folders:
                place = place[folder]
            if change["op"] == "test" and place.get(last) != change["value"]:
                return _failure(422, "Invalid", "the server rejected our request: test failed")
            if change["op"] in ("add", "replace"):
                place[last] = change["value"]
        self.tell("MODIFIED", one)
        self.collect(kind, name)
        return 200, one


def _state(pod: dict[str, Any]) -> dict[str, Any]:
    statuses = pod["status"].get("containerStatuses") or [{"state": {}}]
    state: dict[str, Any] = statuses[0]["state"]
    return state


def _failure(status: int, reason: str, message: str) -> tuple[int, dict[str, Any]]:
    return status, {"kind": "Status", "reason": reason, "message": message, "code": status}


@contextmanager
def serving(cluster: Cluster) -> Iterator[str]:
    """Give the address of an API server for this cluster."""
    handler = type("Bound", (_Handler,), {"cluster": cluster})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        cluster.cut_watches()
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    cluster: Cluster
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None: ...

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        address = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        parts = [part for part in address.path.split("/") if part]
        time.sleep(self.cluster.delay)
        with self.cluster.lock:
            self.cluster.asked.append((self.command, self.path))
            if self.command == "POST":
                self.cluster.bodies.append((address.path, json.dumps(body)))
            if self.cluster.faults:
                status, headers, said = self.cluster.faults.pop(0)
                return self._say(status, said, headers)
            if query.get("watch"):
                heard: queue.Queue[bytes | None] = queue.Queue()
                self.cluster.watches.append(heard)
            else:
                return self._say(*self._answer(parts, query, body))
        return self._stream(heard)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _answer(self, parts: list[str], query: dict[str, str], body: Any) -> tuple[int, dict[str, Any]]:
        cluster = self.cluster
        if parts[-1] == "selfsubjectaccessreviews":
            asked = body["spec"]["resourceAttributes"]
            return 201, {"status": {"allowed": (asked["verb"], asked["resource"]) not in cluster.denied}}
        if parts == ["version"]:
            return 200, {"gitVersion": "v1.20.2"}
        if parts == ["api"]:
            return 200, {"serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "192.0.2.9:6443"}]}
        kind = parts[2] if parts[:2] == ["api", "v1"] and len(parts) == 3 else parts[parts.index("namespaces") + 2]
        name = parts[parts.index("namespaces") + 3] if "namespaces" in parts and kind != parts[-1] else ""
        if kind in cluster.forbidden:
            return _failure(403, "Forbidden", f"{kind} is forbidden")
        if kind == "nodes":
            return 200, {"items": cluster.nodes}
        if parts[-1] == "log":
            return 200, {}
        if self.command == "POST":
            return (201, body) if query.get("dryRun") else cluster.create(kind, body)
        if self.command == "DELETE":
            return cluster.delete(kind, name, body)
        if self.command == "PATCH":
            return cluster.patch(kind, name, body)
        if name:
            found = cluster.objects.get((kind, name))
            return (200, found) if found else _failure(404, "NotFound", f'{kind} "{name}" not found')
        wanted = dict(part.split("=") for part in query.get("labelSelector", "").split(",") if "=" in part)
        items = [
            one
            for (of_kind, _), one in cluster.objects.items()
            if of_kind == kind and wanted.items() <= (one["metadata"].get("labels") or {}).items()
        ]
        return 200, {"metadata": {"resourceVersion": str(cluster.version)}, "items": items}

    def _say(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, heard: queue.Queue[bytes | None]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            while (line := heard.get()) is not None:
                self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                self.wfile.flush()
        finally:
            with self.cluster.lock:
                self.cluster.watches.remove(heard)
            self.close_connection = True  # without the last chunk: cut off
