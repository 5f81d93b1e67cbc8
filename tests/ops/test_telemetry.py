"""Faults and traces leave the platform only where a setting says so, and without what people sent."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

ROOT = Path(__file__).parents[2]
_SECRET = "s3cret-of-a-person"
_REQUEST = """
import asyncio, logging
from backendai.asgi import application

async def ask(path, query):
    headers = [(b"host", b"testserver"), (b"cookie", b"sessionid=SECRET"), (b"authorization", b"Bearer SECRET")]
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query,
             "headers": headers, "http_version": "1.1", "scheme": "http", "server": ("testserver", 80),
             "client": ("127.0.0.1", 9)}
    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}
    async def send(message):
        pass
    await application(scope, receive, send)

asyncio.run(ask("/healthz", b"code=SECRET"))
from backendai.celery import app
@app.task(base=app.Task, name="test.fail")
def fail():
    secret = "SECRET"
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("backendai").exception("A pass failed.")
fail.apply()
""".replace("SECRET", _SECRET)


class Collector(BaseHTTPRequestHandler):
    """Keeps the body of each request by its path."""

    received: dict[str, list[bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.received.setdefault(self.path, []).append(body)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[tuple[str, dict[str, list[bytes]]]]:
    Collector.received = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}", Collector.received
    server.shutdown()
    server.server_close()


def run(code: str, tmp_path: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    told = {"PATH": "/usr/bin:/bin", "BACKENDAI_DATA": str(tmp_path), "BACKENDAI_SECRET_KEY": "k" * 50, **settings}
    words = [sys.executable, "-c", code]
    return subprocess.run(words, cwd=ROOT, env=told, capture_output=True, text=True, timeout=300)


def test_faults_and_spans_arrive_without_what_people_sent(
    collector: tuple[str, dict[str, list[bytes]]], tmp_path: Path
) -> None:
    address, received = collector
    done = run(
        _REQUEST,
        tmp_path,
        BACKENDAI_SENTRY_DSN=f"http://key@{address}/7",
        BACKENDAI_OTLP_ENDPOINT=f"http://{address}/",
    )
    assert done.returncode == 0, done.stderr
    sent = b"".join(received["/api/7/envelope/"])
    assert b"A pass failed." in sent
    assert b"ValueError" in sent
    assert _SECRET.encode() not in sent
    spans = [
        (dict((one.key, one.value.string_value) for one in group.resource.attributes)["service.name"], span.name)
        for body in received["/v1/traces"]
        for group in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]
    assert {("backendai", "GET healthz"), ("backendai", "run/test.fail")} <= set(spans)


def test_nothing_is_loaded_without_a_setting(tmp_path: Path) -> None:
    code = "import sys, backendai.asgi; print({'sentry_sdk', 'opentelemetry.sdk.trace'} & {*sys.modules})"
    assert run(code, tmp_path).stdout == "set()\n"


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("sentry_sdk", "BACKENDAI_SENTRY_DSN", "http://key@127.0.0.1:9/1"),
        ("opentelemetry", "BACKENDAI_OTLP_ENDPOINT", "http://127.0.0.1:9"),
    ],
)
def test_a_missing_package_is_named(tmp_path: Path, name: str, setting: str, value: str) -> None:
    done = run(f"import sys; sys.modules[{name!r}] = None; import backendai.asgi", tmp_path, **{setting: value})
    assert done.returncode == 1
    assert f"{setting} is set" in done.stderr
    assert "bin/install requirements-telemetry.txt" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("BACKENDAI_SENTRY_DSN", "sentry.example.org", "as https://KEY@HOST/PROJECT"),
        ("BACKENDAI_SENTRY_DSN", "https://sentry.example.org/1", "as https://KEY@HOST/PROJECT"),
        ("BACKENDAI_OTLP_ENDPOINT", "127.0.0.1:4318", "such as http://127.0.0.1:4318"),
    ],
)
def test_a_value_that_cannot_be_used_is_told_in_one_sentence(
    tmp_path: Path, setting: str, value: str, said: str
) -> None:
    done = run("import backendai.asgi", tmp_path, **{setting: value})
    assert done.returncode == 1
    assert done.stderr.startswith(f"ERROR: {setting} is set, but it ") and said in done.stderr
    assert "Traceback" not in done.stderr
