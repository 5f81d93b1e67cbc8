"""Why a kernel ended, told by a real engine behind a slow or broken line."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker import APIClient

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.docker import state as docker_state
from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.backends.docker.engine import Engine
from backendai.agent.backends.docker.state import cause_of
from tests.agent.contract_tools import NewSpec, ended_of

pytestmark = pytest.mark.docker
EAT = "exec awk 'BEGIN { text = \"0123456789abcdef\"; while (1) text = text text }'"
EVENTS = b"/events?"
HEAD, NO_MORE = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0\r\n\r\n"


class Line:
    """A socket that leads to the engine, but what the engine says of its events waits for ``go_on``. Where there are
    ``last_words`` they come instead, and then nothing: the line is hung up."""

    def __init__(self, path: Path, engine: str) -> None:
        self._engine = engine
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        self.asked, self.go_on = threading.Event(), threading.Event()
        self.last_words: bytes | None = None
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Serve nobody any more."""
        self.go_on.set()
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._server.accept()[0]
                threading.Thread(target=self._join, args=(client,), daemon=True).start()

    def _join(self, client: socket.socket) -> None:
        held = threading.Event()
        with client, socket.socket(socket.AF_UNIX) as engine:
            engine.connect(self._engine)
            threading.Thread(target=self._answer, args=(engine, client, held), daemon=True).start()
            with contextlib.suppress(OSError):
                while request := client.recv(65536):
                    if EVENTS in request:
                        held.set()
                        self.asked.set()
                    engine.sendall(request)

    def _answer(self, engine: socket.socket, client: socket.socket, held: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while piece := engine.recv(65536):
                if held.is_set():
                    self.go_on.wait(60)
                    if self.last_words is not None:
                        client.sendall(self.last_words)
                        client.shutdown(socket.SHUT_RDWR)
                        return
                client.sendall(piece)


@pytest.fixture
def line(tmp_path: Path, backend: DockerBackend) -> Iterator[Line]:
    """A line to the engine of ``backend``."""
    assert backend._engine.socket_path, "these tests need an engine behind a unix socket: unset DOCKER_HOST"
    line = Line(tmp_path / "line.sock", backend._engine.socket_path)
    yield line
    line.close()


@pytest.fixture
def far(line: Line, tmp_path: Path, deployment: str) -> Iterator[Engine]:
    """The engine at the other end of the line."""
    far = Engine(f"unix://{tmp_path}/line.sock", deployment, "n1")
    yield far
    far.close()


@pytest.fixture
def starved(backend: DockerBackend, engine: APIClient, new_spec: NewSpec) -> dict[str, Any]:
    """A container that ran out of memory, as it looks where the engine has learned it too late."""
    return ended_container(backend, engine, new_spec, EAT)


@pytest.fixture
def killed(backend: DockerBackend, engine: APIClient, new_spec: NewSpec) -> dict[str, Any]:
    """A container whose main process was killed otherwise."""
    return ended_container(backend, engine, new_spec, "sh -c 'kill -9 $$'")


def ended_container(backend: DockerBackend, engine: APIClient, new_spec: NewSpec, command: str) -> dict[str, Any]:
    spec = new_spec(session_type="batch", command=command, slots={"cpu": "1", "mem": str(32 * 2**20)})
    backend.start(spec)
    assert ended_of(backend, spec.kernel_id).exit_code == 137
    found: dict[str, Any] = engine.inspect_container(f"krn-{spec.kernel_id}")
    found["State"]["OOMKilled"] = False
    return found


def test_it_waits_for_an_engine_that_begins_to_answer_late(line: Line, far: Engine, starved: dict[str, Any]) -> None:
    answer: list[str] = []

    def ask() -> None:
        with far.asking():
            answer.append(cause_of(far, starved))

    asking = threading.Thread(target=ask)
    asking.start()
    assert line.asked.wait(30)
    asking.join(2 * docker_state._LATE_SECONDS)
    assert asking.is_alive()
    line.go_on.set()
    asking.join()
    assert answer == ["oom"]


def test_it_takes_an_engine_that_does_not_begin_to_answer_for_no_answer(
    far: Engine, starved: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_state, "_HEAD_SECONDS", 0.5)
    with pytest.raises(BackendError) as caught, far.asking():
        cause_of(far, starved)
    assert caught.value.code == "engine-unreachable"


@pytest.mark.parametrize("last_words", [b"", HEAD, HEAD + NO_MORE])
def test_it_takes_an_engine_that_hangs_up_for_no_answer(
    last_words: bytes, line: Line, far: Engine, starved: dict[str, Any]
) -> None:
    line.last_words = last_words
    line.go_on.set()
    with pytest.raises(BackendError) as caught, far.asking():
        cause_of(far, starved)
    assert caught.value.code == "engine-unreachable"


def test_it_takes_silence_for_a_no_once_the_engine_has_started_to_answer(
    line: Line, far: Engine, killed: dict[str, Any]
) -> None:
    line.go_on.set()
    with far.asking():
        assert cause_of(far, killed) == ""
