"""Services start when they are first wanted, once, and say why when they do not come up."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator, Sequence
from unittest.mock import Mock
from uuid import uuid4

import pytest

from backendai.agent.backends.base import BackendError, KernelGone
from backendai.agent.gateway import app_starts
from backendai.agent.gateway.app_starts import AppStarts, BadDefinition
from tests.agent.fake_services import FakeServices
from tests.slow_machines import BUSY, make_machine

pytestmark = pytest.mark.asyncio
KERNEL = uuid4()


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def host() -> FakeServices:
    return FakeServices()


@pytest.fixture
def starts(host: FakeServices, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> AppStarts:
    make_machine(monkeypatch)
    monkeypatch.setattr(app_starts, "_WAIT_SECONDS", 0.0)
    return AppStarts(host, now=clock)


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


async def test_it_starts_a_service_with_its_ports_and_its_interpreter_filled_in(
    starts: AppStarts, host: FakeServices, port: int
) -> None:
    host.define(
        "lab",
        command=["{runtime_path}", "--port={ports[0]}", "--also={ports[1]}", "{ports[9]}", "{other}"],
        env={"A": "b"},
        url_template="/lab",
    )
    host.labels = {
        "ai.backend.service-ports": f"lab:http:[{port},9999]",
        "ai.backend.runtime-path": "/opt/kernel/bin/python",
    }
    servers: list[socket.socket] = []

    def listen(command: Sequence[str]) -> None:
        servers.append(socket.create_server(("127.0.0.1", port)))

    host.on_launch = listen
    state = await starts.look(KERNEL, "lab", port)
    assert (state.state, state.path) == ("ready", "/lab")
    assert host.launched == [
        ["/opt/kernel/bin/python", f"--port={port}", "--also=9999", "{ports[9]}", "{other}"],
    ]
    assert host.environ == [{"A": "b", "BACKENDAI_APP_ARGUMENTS": "[]"}]
    servers[0].close()


async def test_many_who_want_it_at_once_start_it_once(starts: AppStarts, host: FakeServices, port: int) -> None:
    host.define("lab", command=["lab"])
    states = await asyncio.gather(*(starts.look(KERNEL, "lab", port) for _ in range(5)))
    assert {state.state for state in states} == {"starting"}
    assert len(host.launched) == 1


async def test_it_uses_what_answers_already(starts: AppStarts, host: FakeServices, listening: int) -> None:
    host.define("lab", command=["lab"], url_template="/tree")
    state = await starts.look(KERNEL, "lab", listening)
    assert (state.state, state.path, host.launched) == ("ready", "/tree", [])


async def test_it_shows_the_last_words_of_a_service_that_ended_and_starts_it_anew_when_told(
    starts: AppStarts, host: FakeServices, port: int
) -> None:
    host.define("lab", command=["lab"])
    await starts.look(KERNEL, "lab", port)
    host.codes["launch-1"], host.words = 3, b"no module named lab\n"
    for _ in range(2):
        state = await starts.look(KERNEL, "lab", port)
        assert (state.state, state.message) == ("failed", "lab ended with exit code 3.")
        assert state.log == "no module named lab\n"
    assert len(host.launched) == 1
    assert (await starts.look(KERNEL, "lab", port, again=True)).state == "starting"
    assert len(host.launched) == 2


async def test_it_gives_up_on_a_service_that_does_not_answer_in_time(
    starts: AppStarts, host: FakeServices, clock: Clock, port: int
) -> None:
    host.define("lab", command=["lab"])
    host.words = b"reading settings\n"
    state = await starts.look(KERNEL, "lab", port)
    assert (state.state, state.log) == ("starting", "")
    clock.time += 59
    state = await starts.look(KERNEL, "lab", port)
    assert (state.state, state.seconds, state.log) == ("starting", 59, "reading settings\n"), "it takes long"
    clock.time += 2
    state = await starts.look(KERNEL, "lab", port)
    assert state.state == "failed"
    assert state.message == f"lab did not answer on port {port} within 60 s."


async def test_it_gives_kernels_the_time_that_their_backend_allows(
    starts: AppStarts, host: FakeServices, clock: Clock, port: int
) -> None:
    host.define("lab", command=["lab"])
    host.start_seconds = 240.0
    await starts.look(KERNEL, "lab", port)
    clock.time += 239
    assert (await starts.look(KERNEL, "lab", port)).state == "starting"
    clock.time += 2
    state = await starts.look(KERNEL, "lab", port)
    assert (state.state, state.message) == ("failed", f"lab did not answer on port {port} within 240 s.")


async def test_on_a_busy_machine_a_start_may_take_longer_and_its_failure_names_that(
    starts: AppStarts, host: FakeServices, clock: Clock, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_machine(monkeypatch, BUSY)
    host.define("lab", command=["lab"])
    await starts.look(KERNEL, "lab", port)
    clock.time += 359
    assert (await starts.look(KERNEL, "lab", port)).state == "starting"
    clock.time += 2
    assert (await starts.look(KERNEL, "lab", port)).message == (
        f"lab did not answer on port {port} within 360 s. "
        "This machine is busy now (load 12 on 2 cores), which may be the cause."
    )


async def test_it_starts_a_service_again_that_ended_after_it_had_answered(
    starts: AppStarts, host: FakeServices, port: int
) -> None:
    host.define("lab", command=["lab"])
    servers: list[socket.socket] = []
    host.on_launch = lambda command: servers.append(socket.create_server(("127.0.0.1", port)))
    assert (await starts.look(KERNEL, "lab", port)).state == "ready"
    servers[0].close()
    host.codes["launch-1"] = 0
    assert (await starts.look(KERNEL, "lab", port)).state == "ready"
    assert len(host.launched) == 2
    servers[1].close()


async def test_it_says_when_nothing_listens_and_the_image_does_not_say_how_to_start_it(
    starts: AppStarts, port: int
) -> None:
    assert (await starts.look(KERNEL, "own", port)).state == "absent"


async def test_it_starts_nothing_in_a_kernel_that_is_gone(starts: AppStarts, host: FakeServices, port: int) -> None:
    host.is_gone = True
    with pytest.raises(KernelGone):
        await starts.look(KERNEL, "lab", port)


async def test_it_forgets_kernels_that_are_not_here(starts: AppStarts, host: FakeServices, port: int) -> None:
    host.define("lab", command=["lab"])
    await starts.look(KERNEL, "lab", port)
    starts.forget({KERNEL})
    await starts.look(KERNEL, "lab", port)
    assert len(host.launched) == 1
    starts.forget(set())
    await starts.look(KERNEL, "lab", port)
    assert len(host.launched) == 2


@pytest.mark.parametrize("definition", [b"{", b"[]", b"{}", b'{"command": "rm -rf"}', b'{"command": [1]}'])
async def test_it_refuses_a_definition_that_makes_no_sense(
    starts: AppStarts, host: FakeServices, port: int, definition: bytes
) -> None:
    host.definitions["lab"] = definition
    with pytest.raises(BadDefinition):
        await starts.look(KERNEL, "lab", port)
    assert host.launched == []


@pytest.mark.parametrize(
    "page", ["//evil.example/", "/\\evil.example", "https://evil.example", "lab", "/a\nb", 3, None, "/\tx"]
)
async def test_it_opens_no_page_outside_the_app(
    starts: AppStarts, host: FakeServices, listening: int, page: object
) -> None:
    host.define("lab", command=["lab"], url_template=page)
    assert (await starts.look(KERNEL, "lab", listening)).path == "/"


async def test_arguments_come_where_the_command_wants_them_and_are_never_read(
    starts: AppStarts, host: FakeServices, port: int
) -> None:
    host.define("board", command=["board", "{arguments}", "--port={ports[0]}"])
    host.labels = {"ai.backend.service-ports": f"board:http:[{port}]"}
    await starts.look(KERNEL, "board", port, arguments=("--logdir={ports[0]} $(id)",))
    host.define("plain", command=["plain"])
    await starts.look(KERNEL, "plain", port, arguments=("--a=b",))
    assert host.launched == [["board", "--logdir={ports[0]} $(id)", f"--port={port}"], ["plain", "--a=b"]]


async def test_other_arguments_start_it_anew(starts: AppStarts, host: FakeServices, listening: int) -> None:
    host.define("board", command=["board"])
    for words in ((), ("--a=b",), ("--a=b",), ("--a=c",)):
        await starts.look(KERNEL, "board", listening, arguments=words)
    assert host.launched == [], "nobody knows with which it was started, as by hand"
    host.define("later", command=["later"])
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
    await starts.look(KERNEL, "later", port)
    for words in (("--a=b",), ("--a=b",), ("--a=c",)):
        await starts.look(KERNEL, "later", port, arguments=words)
    assert host.launched == [["later"], ["later", "--a=b"], ["later", "--a=c"]]


async def test_other_arguments_start_anew_what_an_earlier_agent_has_started(
    starts: AppStarts, host: FakeServices, listening: int
) -> None:
    host.define("board", command=["board"])
    host.arguments_before = json.dumps(["--a=b"])
    await starts.look(KERNEL, "board", listening, arguments=("--a=b",))
    assert host.launched == []
    await starts.look(KERNEL, "board", listening, arguments=("--a=c",))
    assert host.launched == [["board", "--a=c"]]


async def test_commands_before_the_start_run_first_and_stop_it_when_they_fail(
    starts: AppStarts, host: FakeServices, port: int
) -> None:
    host.define(
        "board",
        prestart=[["mkdir", "-p", "/home/work/my logs"], ["sh", "-c", "echo {ports[0]}"]],
        command=["board", "{arguments}"],
    )
    host.labels = {"ai.backend.service-ports": f"board:http:[{port}]"}
    await starts.look(KERNEL, "board", port, arguments=("--a='; id",))
    script = host.launched[0]
    assert script[:2] == ["/bin/sh", "-c"]
    assert script[2].startswith(f"mkdir -p '/home/work/my logs' && sh -c 'echo {port}' && exec board ")
    host.define("first", prestart=[["sh", "-c", "echo one"], ["false"]], command=["echo", "two"])
    await starts.look(KERNEL, "first", port)
    done = await asyncio.create_subprocess_exec(*host.launched[1], stdout=asyncio.subprocess.PIPE)
    assert (await done.communicate())[0] == b"one\n"
    assert done.returncode == 1


@pytest.mark.parametrize("before", ["mkdir x", [["a"], "b"], [[]], [[1]], {"a": 1}])
async def test_what_is_no_command_before_the_start_is_said(
    starts: AppStarts, host: FakeServices, port: int, before: object
) -> None:
    host.define("board", prestart=before, command=["board"])
    with pytest.raises(BadDefinition):
        await starts.look(KERNEL, "board", port)


async def test_a_slow_start_goes_on_while_its_output_cannot_be_read(
    starts: AppStarts, host: FakeServices, clock: Clock, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.define("lab", command=["lab"])
    await starts.look(KERNEL, "lab", port)
    clock.time += 10
    host.words = b"loading\n"
    state = await starts.look(KERNEL, "lab", port)
    assert (state.state, state.log) == ("starting", "loading\n")
    monkeypatch.setattr(host, "log", Mock(side_effect=BackendError("The engine is busy.")))
    state = await starts.look(KERNEL, "lab", port)
    assert (state.state, state.log) == ("starting", "")
