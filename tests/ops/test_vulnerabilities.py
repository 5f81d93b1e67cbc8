"""The check of the pinned packages: it warns, and never fails."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from backendai.ops.tools.vulnerabilities import main

Answer = Callable[[list[dict[str, Any]]], Any]


class _Service(HTTPServer):
    answer: Answer = staticmethod(lambda queries: {"results": [{} for _ in queries]})


class _Handler(BaseHTTPRequestHandler):
    server: _Service

    def do_POST(self) -> None:
        queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        self.send_response(200 if self.path == "/v1/querybatch" else 404)
        self.end_headers()
        self.wfile.write(json.dumps(self.server.answer(queries)).encode())

    def log_message(self, *args: object) -> None:
        """Keep the output of the tests clean."""


@pytest.fixture
def service() -> Iterator[_Service]:
    with _Service(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def pins(tmp_path: Path) -> Path:
    file = tmp_path / "requirements.txt"
    file.write_text(
        "first[extra]==1.0 \\\n    --hash=sha256:00\n    # via -r other==3\nsecond==2.0 ; python_version < '3.12'\n"
    )
    return file


def run(service: _Service, pins: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main([str(pins), "--service", f"http://127.0.0.1:{service.server_port}"]) == 0
    return capsys.readouterr().out.splitlines()


def test_packages_without_vulnerabilities_are_counted(
    service: _Service, pins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(service, pins, capsys) == ["2 packages, no known vulnerability"]


def test_vulnerable_packages_are_named_and_nothing_fails(
    service: _Service, pins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(queries: list[dict[str, Any]]) -> Any:
        bad = {"package": {"name": "second", "ecosystem": "PyPI"}, "version": "2.0"}
        return {"results": [{"vulns": [{"id": "CVE-1"}, {"id": "CVE-2"}]} if query == bad else {} for query in queries]}

    service.answer = answer
    first, last = run(service, pins, capsys)
    assert first == "second 2.0: CVE-1, CVE-2"
    assert last.startswith("WARNING: known vulnerabilities in 1 of 2 packages: second 2.0")


@pytest.mark.parametrize("nonsense", [{"results": [{}]}, {"results": None}, [], "no"])
def test_an_answer_that_is_none_is_said_in_one_line(
    nonsense: Any, service: _Service, pins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service.answer = lambda queries: nonsense
    (line,) = run(service, pins, capsys)
    assert line.startswith("WARNING: not checked")


def test_a_service_that_is_away_is_said_in_one_line(
    service: _Service, pins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service.server_close()
    (line,) = run(service, pins, capsys)
    assert line.startswith("WARNING: not checked")
