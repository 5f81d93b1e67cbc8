"""Health checks of containers: a part that hangs is not alive."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from backendai.agent.settings.credentials import save_address
from backendai.ops import alive
from backendai.ops.run import valkey
from tests.patience import until

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
BEAT = ["celery", "-q", "-A", "backendai.celery", "beat", "--scheduler", "backendai.ops.beat:MarkingScheduler"]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("BACKENDAI_DATA", "BACKENDAI_AGENT_DATA"):
        monkeypatch.setenv(name, str(tmp_path))
    return tmp_path


@contextlib.contextmanager
def answering(said: object, status: int = 200) -> Iterator[int]:
    """Run a server that says the same to everybody; gives its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

        def log_message(self, *arguments: object) -> None:
            """Keep quiet."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_a_server_that_answers_is_alive() -> None:
    with answering("ok") as port:
        assert alive.main(["url", f"http://127.0.0.1:{port}/healthz"]) == 0


def test_a_server_that_answers_with_an_error_is_not_alive(capsys: pytest.CaptureFixture[str]) -> None:
    with answering({"scheduler": "no pass lately"}, 503) as port:
        assert alive.main(["url", f"http://127.0.0.1:{port}/readyz"]) == 1
    assert "no pass lately" in capsys.readouterr().err


def test_a_server_that_takes_connections_and_says_nothing_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alive, "_PATIENCE", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        assert alive.main(["url", f"http://127.0.0.1:{mute.getsockname()[1]}/"]) == 1


def test_beat_is_alive_while_it_ticks_and_not_when_it_hangs(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert alive.main(["beat"]) == 1
    address = data / "r"
    broker = valkey.valkey_program(valkey.find_server(), data, address)
    told = os.environ | {"REDIS_URL": f"unix://{address}", "DJANGO_SETTINGS_MODULE": "backendai.settings.portal"}
    with (
        subprocess.Popen(broker.command, stdout=subprocess.DEVNULL) as server,
        subprocess.Popen([sys.executable, "-m", *BEAT], cwd=ROOT, env=told) as beat,
    ):
        try:
            until(lambda: alive.main(["beat"]) == 0)
            beat.send_signal(signal.SIGSTOP)
            until(lambda: psutil.Process(beat.pid).status() == psutil.STATUS_STOPPED)
            os.utime(data / alive.BEAT_MARK, (0, 0))
            assert alive.main(["beat"]) == 1
            assert "beat has not ticked for" in capsys.readouterr().err
            beat.send_signal(signal.SIGCONT)
            until(lambda: alive.main(["beat"]) == 0)
        finally:
            beat.kill()
            server.kill()


@pytest.mark.parametrize(
    ("since", "code", "words"),
    [(3.2, 0, ""), (None, 1, "has not reached the portal yet"), (75.0, 1, "has not reached the portal for 75 s")],
)
def test_an_agent_is_alive_while_it_speaks_with_the_portal(
    data: Path, capsys: pytest.CaptureFixture[str], since: float | None, code: int, words: str
) -> None:
    with answering({"status": "ok", "seconds_since_sync": since}) as port:
        save_address(data, "0.0.0.0", port)
        assert alive.main(["agent"]) == code
    assert words in capsys.readouterr().err


def test_an_agent_whose_gateway_is_not_there_is_not_alive(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert alive.main(["agent"]) == 1
    assert "has not opened its gateway" in capsys.readouterr().err
    with answering("") as port:
        save_address(data, "127.0.0.1", port)
    assert alive.main(["agent"]) == 1
    assert "does not answer" in capsys.readouterr().err
