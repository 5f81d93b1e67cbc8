"""Connections that say too little, too slowly or too much do not stay."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import uvicorn

from backendai import asgi
from backendai.portal.http import timeouts as patient_http
from backendai.portal.http.timeouts import HttpWithTimeouts
from tests.patience import patient
from tests.realtime.test_handshakes import compose, single_machine

pytestmark = pytest.mark.asyncio
HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"


async def echo(scope: dict[str, Any], receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + message.get("body", b""), message.get("more_body", False)
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]}
    )
    await send({"type": "http.response.body", "body": body})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patient_http, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(patient_http, "BODY_SECONDS", 0.3)
    monkeypatch.setattr(patient_http, "READER_SECONDS", 0.3)


@asynccontextmanager
async def served(application: Any = echo) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield a connection to a server with the class that ``bin/up`` names."""
    config = uvicorn.Config(application, http=single_machine()["http"], lifespan="off", log_config=None, port=0)
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    assert config.http_protocol_class is HttpWithTimeouts
    port = server.servers[0].sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    yield reader, writer
    writer.close()
    server.should_exit = True
    await running


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until the server closes the connection. Raises TimeoutError."""
    try:
        return await asyncio.wait_for(reader.read(), 1.5)
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize(
    "sent", [b"", HEAD, HEAD + b"Content-Length: 5\r\n\r\n12", HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n1"]
)
async def test_it_closes_what_is_not_whole_in_time(sent: bytes) -> None:
    async with served() as (reader, writer):
        writer.write(sent)
        assert await rest_of(reader) == b""


@pytest.mark.parametrize(
    "path", ["/login/", "/node/v1/join", "/node/v1/sync", f"/api/v1/sessions/{UUID(int=1)}/files/a"]
)
async def test_a_body_that_is_cut_off_is_no_line_of_the_log(path: str, caplog: pytest.LogCaptureFixture) -> None:
    async with served(asgi.application) as (reader, writer):
        writer.write(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12" % path.encode())
        await rest_of(reader)
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("drop", [b"X: y\r\n", b"\r\n"])
async def test_a_head_or_blank_lines_that_come_drop_by_drop_do_not_keep_it_open(drop: bytes) -> None:
    async with served() as (reader, writer):
        writer.write(HEAD if drop != b"\r\n" else b"")
        ended = asyncio.ensure_future(rest_of(reader))
        for _ in range(20):
            writer.write(drop)
            await asyncio.sleep(0.1)
            if ended.done():
                break
        assert ended.done() and await ended == b""


async def test_a_body_that_trickles_is_cut_and_one_that_flows_is_not() -> None:
    async with served() as (reader, writer):
        writer.write(HEAD + b"Content-Length: 200000\r\n\r\n")
        for _ in range(10):
            writer.write(bytes(20_000))
            await asyncio.sleep(0.1)
        assert (await asyncio.wait_for(reader.readline(), 2)).startswith(b"HTTP/1.1 200")
    async with served() as (reader, writer):
        writer.write(HEAD + b"Content-Length: 200000\r\n\r\n")
        ended = asyncio.ensure_future(rest_of(reader))
        while not ended.done():
            writer.write(b"drop")
            await asyncio.wait([ended], timeout=0.1)
        assert await ended == b""


class Endless:
    """Sends 300 MiB, more than all buffers between the two: it ends once nobody reads any more."""

    def __init__(self) -> None:
        self.has_ended = asyncio.Event()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(300):
            await send({"type": "http.response.body", "body": bytes(2**20), "more_body": True})
        self.has_ended.set()


async def test_a_reader_that_takes_nothing_is_cut_and_one_that_is_slow_is_not() -> None:
    async with served(idle := Endless()) as (_, writer):
        writer.transport.pause_reading()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.wait_for(idle.has_ended.wait(), patient(10))
    async with served(read := Endless()) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(10):
            await asyncio.wait_for(reader.readexactly(2**20), patient(5))
            await asyncio.sleep(0.1)
        assert not read.has_ended.is_set()


async def test_requests_that_follow_each_other_after_a_pause_are_answered() -> None:
    async with served() as (reader, writer):
        for _ in range(3):
            writer.write(HEAD + b"Content-Length: 2\r\n\r\nok")
            assert (await asyncio.wait_for(reader.readuntil(b"ok"), 2)).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.5)
        writer.write((HEAD + b"Content-Length: 2\r\n\r\nok") * 2)
        for _ in range(2):
            assert (await asyncio.wait_for(reader.readuntil(b"ok"), 2)).startswith(b"HTTP/1.1 200")


async def test_a_head_of_any_size_is_not_kept() -> None:
    async with served() as (reader, writer):
        writer.write(b"GET /" + b"a" * 200_000)
        started_at = asyncio.get_running_loop().time()
        answer = await rest_of(reader)  # nothing where the reset overtakes the answer
        assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")
        assert asyncio.get_running_loop().time() - started_at < 0.25, "at once, not when its time is up"


async def test_compose_and_bin_up_name_the_same_limits() -> None:
    one, other = single_machine(), compose()
    for name in ("http", "limit_concurrency", "ws_max_size", "ws_per_message_deflate"):
        assert one[name] == other[name], name
    assert one["limit_concurrency"] == 10_000


async def test_processes_may_open_more_files_than_shells_let_them() -> None:
    words = (
        "import resource; from backendai.base.process.open_files import raise_open_files;"
        "print(raise_open_files(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = str(min(65536, hard) if hard != resource.RLIM_INFINITY else 65536)
    shell = ["sh", "-c", 'ulimit -Sn 1024; exec "$@"', "sh", sys.executable, "-c", words]
    done = subprocess.run(shell, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.stdout.split() == [wanted, wanted]
