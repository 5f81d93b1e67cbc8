"""Services of native kernels: reached on a socket of the kernel alone, with their own last words."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.native.backend import IMAGE, NativeBackend
from backendai.agent.backends.native.sandbox import Isolation
from backendai.agent.backends.native.terminal import ask_exit_code, request_program, request_terminal
from backendai.agent.gateway.app_starts import AppStarts, AppState
from backendai.agent.gateway.guest_links import GuestLinks
from backendai.agent.gateway.ports import Ports
from backendai.agent.guest.link.sockets import listen
from tests.agent.specs import make_spec
from tests.agent.test_process_backend import data, isolation  # noqa: F401
from tests.patience import patient

SERVER = """
import os, socket, sys
if sys.argv[1] == "fails":
    sys.exit("nothing works")
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
print("listening in", os.getcwd(), flush=True)
while True:
    client, _ = server.accept()
    try:
        client.sendall(b"hello " + client.recv(100))
    except OSError:  # the agent looked whether somebody listens, and left
        pass
    client.close()
"""


def make_environment(folder: Path, python: Path) -> None:
    """Make an environment whose JupyterLab is a small server and whose Notebook fails."""
    made = folder / "python-1"
    (made / "service-defs").mkdir(parents=True)
    (made / "bin").mkdir()
    (made / "bin" / "python").symlink_to(python)
    for name, argument in (("jupyterlab", "{socket}"), ("jupyter", "fails")):
        told = {"command": ["{runtime_path}", "-c", SERVER, argument], "url_template": "/lab"}
        (made / "service-defs" / f"{name}.json").write_text(json.dumps(told))
    (made / ".complete").touch()
    (folder / "python").symlink_to(made.name)


@pytest.fixture
def environments(data: Path) -> Path:  # noqa: F811
    return data / "environments"


@pytest.fixture
def backend(data: Path, isolation: Isolation, environments: Path) -> Iterator[NativeBackend]:  # noqa: F811
    backend = NativeBackend(data / "agent", deployment="test", agent="n1", environments=environments)
    yield backend
    backend.close()


@pytest.fixture
def kernel(backend: NativeBackend) -> Iterator[Callable[[], UUID]]:
    started: list[UUID] = []

    def start() -> UUID:
        spec = make_spec(slots={"cpu": "1", "mem": str(2**30)}, image=IMAGE, start_in="/usr")
        backend.start(spec)
        started.append(spec.kernel_id)
        return spec.kernel_id

    yield start
    for kernel_id in started:
        backend.remove(kernel_id)


async def settled(starts: AppStarts, kernel_id: UUID, service: str, port: int) -> AppState:
    async with asyncio.timeout(patient(40)):
        while (state := await starts.look(kernel_id, service, port)).state == "starting":
            await asyncio.sleep(0.05)
    return state


def test_services_open_in_every_session_by_themselves(
    backend: NativeBackend,
    kernel: Callable[[], UUID],
    environments: Path,
    isolation: Isolation,  # noqa: F811
) -> None:
    first, second = kernel(), kernel()
    own = Path(sys.executable).resolve()  # users of kernels may not reach it
    make_environment(environments, own if isolation.bwrap else Path("/usr/bin/python3"))  # while the sessions run

    async def walk() -> None:
        assert backend.services is not None
        links = GuestLinks(backend.guests)
        ports = Ports(backend.services, links)
        starts = AppStarts(backend.services, ports)
        for one in (first, second):  # the same port, and yet no conflict
            state = await settled(starts, one, "jupyterlab", 8888)
            assert (state.state, state.path) == ("ready", "/lab"), state
        assert b"listening in /usr\n" in backend.services.log(first, "jupyterlab", limit=4096)
        again = AppStarts(backend.services, ports)
        assert (await again.look(first, "jupyterlab", 8888)).state == "ready", "after a restart of the agent"
        assert backend.services.arguments(first, "jupyterlab") == "[]"
        failed = await settled(starts, first, "jupyter", 8889)
        assert (failed.state, failed.message) == ("failed", "jupyter ended with exit code 1.")
        assert failed.log == "nothing works\n"
        absent = await starts.look(first, "port-9", 9)
        assert absent.state == "absent"
        links.close()

    asyncio.run(walk())


def test_it_says_how_far_the_environment_is_or_why_there_is_none(
    backend: NativeBackend, kernel: Callable[[], UUID], environments: Path
) -> None:
    running = kernel()
    assert backend.services is not None
    assert "bin/build-native" in backend.services.source(running, "jupyterlab").fault
    told = {"state": "building", "percent": 40, "began_at": time.time() - 90}
    (environments / "python.json").write_text(json.dumps(told))
    source = backend.services.source(running, "jupyterlab")
    assert re.search(r"40 % after \d+ s", source.waiting) and source.percent == 40
    (environments / "python.json").write_text(json.dumps({"state": "failed", "message": "The disk is full."}))
    assert backend.services.source(running, "jupyterlab").fault == "The disk is full."
    assert backend.services.source(running, "port-8000").fault == ""


def test_the_words_of_a_service_are_read_from_a_plain_file_only(
    backend: NativeBackend,
    kernel: Callable[[], UUID],
    data: Path,  # noqa: F811
) -> None:
    running = kernel()
    folder = backend._find(running)
    assert folder is not None and backend.services is not None
    where = Path(folder.read("launch")["runtime"] or folder.path / "tmp")
    (data / "secret").write_text("secret")
    (where / ".app-jupyterlab.log").symlink_to(data / "secret")
    assert backend.services.log(running, "jupyterlab", limit=100) == b""


@pytest.mark.parametrize("said", [b"[" * 4000, b"[]", b'{"error": [{}]}', b"\xff"], ids=["deep", "list", "odd", "raw"])
def test_a_program_that_answers_for_the_first_process_harms_nobody(tmp_path: Path, said: bytes) -> None:
    with listen(tmp_path / "door.sock") as listener:

        def answer() -> None:
            for _ in range(3):
                with listener.accept()[0] as connection:
                    connection.recv(65536)
                    socket.send_fds(connection, [said], [listener.fileno()] * 3)

        threading.Thread(target=answer, daemon=True).start()
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(BackendError, match="does not open a terminal"):
            request_terminal(tmp_path, name="web", rows=24, cols=80)
        with pytest.raises(BackendError, match="does not start the program"):
            request_program(tmp_path, ["true"])
        assert ask_exit_code(tmp_path, 1) is None
        assert len(os.listdir("/proc/self/fd")) <= before + 1, "only the connection that the thread closes may be left"
