"""What servers in kernels may write on a connection: each request gets its own answer, whole or visibly broken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from asgiref.sync import sync_to_async

from backendai.gates.gateways.answers import LARGEST_HEAD
from tests.appproxy.stage import Stage, lead_to, stage
from tests.appproxy.test_raw_many import UPGRADE, ask, statuses
from tests.patience import patient

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]
OWN = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine"
STRANGE = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nSet-Cookie: evil=1\r\n\r\nbeyond"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
TRAILERS = b"4\r\nmine\r\n0\r\nSet-Cookie: evil=1\r\nX-Trailer: 1\r\n\r\n"


class Scripted:
    """Writes the answer of each path, and keeps its connections open unless the path ends with ``-close``."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self.later = b""  # written once after an answer, when nobody has asked
        self.was_late = asyncio.Event()
        self.paths: list[list[str]] = []  # of each connection

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        paths: list[str] = []
        self.paths.append(paths)
        try:
            while True:
                paths.append((await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode())
                writer.write(self.answers.get(paths[-1], OWN))
                await writer.drain()
                if self.later:
                    await asyncio.sleep(0.05)
                    writer.write(self.later)
                    self.later = b""
                    self.was_late.set()
                if paths[-1].endswith("-close"):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def scripted() -> AsyncIterator[tuple[Stage, Scripted, str]]:
    app = Scripted()
    server = await asyncio.start_server(app.serve, "127.0.0.1", 0)
    async with stage() as here:
        await sync_to_async(lead_to)(here.session, server.sockets[0].getsockname()[1])
        yield here, app, await here.enter()
    server.close()


async def get(here: Stage, cookie: str, path: str, method: str = "GET") -> tuple[int, bytes, bool]:
    """Return status and body, and whether a cookie came with them."""
    async with asyncio.timeout(patient(10)):
        answer = await here.ask(method, path, cookie=cookie)
        return answer.status, await answer.read(), "Set-Cookie" in answer.headers


async def test_what_follows_an_answer_is_no_answer_to_the_next_request() -> None:
    async with scripted() as (here, app, cookie):
        app.answers = {
            "/two": OWN + STRANGE,
            "/half": OWN + STRANGE[:20],
            "/unframed": b"HTTP/1.1 204 No\r\n\r\n" + STRANGE,
            "/closing": b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nmine" + STRANGE,
            "/chunked": CHUNKED + TRAILERS + STRANGE,
        }
        for path in app.answers:
            expected = (204, b"", False) if path == "/unframed" else (200, b"mine", False)
            assert await get(here, cookie, path) == expected, path
            assert await get(here, cookie, "/next") == (200, b"mine", False), path
        assert [paths[-1] for paths in app.paths[:-1]] == list(app.answers)  # each was the last of its connection


async def test_bytes_that_come_while_nobody_asks_are_no_answer_either() -> None:
    async with scripted() as (here, app, cookie):
        app.later = STRANGE
        assert await get(here, cookie, "/first") == (200, b"mine", False)
        await app.was_late.wait()
        assert await get(here, cookie, "/next") == (200, b"mine", False)
        assert app.paths == [["/first"], ["/next"]]


async def test_a_body_behind_an_answer_to_head_reaches_nobody() -> None:
    async with scripted() as (here, app, cookie):
        app.answers = {"/head": STRANGE, "/early": STRANGE.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"}
        for path in app.answers:
            assert await get(here, cookie, path, "HEAD") == (200, b"", True)
            assert await get(here, cookie, "/next") == (200, b"mine", False)


async def test_answers_that_have_no_body_keep_their_connection_whatever_length_they_name() -> None:
    async with scripted() as (here, app, cookie):
        app.answers = {
            "/304": b"HTTP/1.1 304 Same\r\nETag: x\r\nContent-Length: 500\r\n\r\n",
            "/204": b"HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n",
        }
        for path in ("/304", "/204", "/next"):
            assert (await get(here, cookie, path))[1] == (b"mine" if path == "/next" else b"")
        assert app.paths == [["/304", "/204", "/next"]]


async def test_interim_answers_and_trailers_stay_with_the_proxy() -> None:
    async with scripted() as (here, app, cookie):
        interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nSet-Cookie: evil=1\r\nLink: x\r\n\r\n"
        app.answers = {"/interim": interim + OWN, "/trailers": CHUNKED + TRAILERS}
        for path in ("/interim", "/trailers", "/next"):
            assert await get(here, cookie, path) == (200, b"mine", False)
        assert app.paths == [["/interim", "/trailers", "/next"]]
        raw = await ask(here, f"GET /trailers HTTP/1.1\r\nHost: {here.netloc}\r\nCookie: {cookie}\r\n\r\n".encode())
        assert raw.endswith(b"4\r\nmine\r\n0\r\n\r\n") and b"railer:" not in raw


async def test_an_answer_that_ends_before_its_end_is_seen_as_broken() -> None:
    async with scripted() as (here, app, cookie):
        app.answers = {
            "/short-close": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
            "/chunk-close": CHUNKED + b"5\r\nabc",
            "/open-close": CHUNKED + b"3\r\nabc\r\n",
            "/coded-close": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc",
            "/odd": CHUNKED + b"3\r\nabcx0\r\n\r\n",
        }
        for path in app.answers:
            with pytest.raises(aiohttp.ClientError):
                await get(here, cookie, path)
        app.answers = {
            "/unframed-close": b"HTTP/1.1 200 OK\r\n\r\nto the end",
            "/old-close": b"HTTP/1.0 200 OK\r\n\r\nold",
        }
        assert (await get(here, cookie, "/unframed-close"))[1] == b"to the end"
        assert (await get(here, cookie, "/old-close"))[1] == b"old"


async def test_heads_and_trailers_without_an_end_are_not_kept() -> None:
    async with scripted() as (here, app, cookie):
        endless = b"a" * LARGEST_HEAD
        app.answers = {
            "/interim": b"HTTP/1.1 100 Continue\r\n\r\n" * (LARGEST_HEAD // 20),
            "/reason": b"HTTP/1.1 200 " + endless,
            "/header": b"HTTP/1.1 200 OK\r\nX-Long: " + endless,
        }
        for path in app.answers:
            assert (await get(here, cookie, path))[0] == 502
        app.answers["/trailer"] = CHUNKED + b"4\r\nmine\r\n0\r\nX-Long: " + 3 * endless
        with pytest.raises(aiohttp.ClientError):
            await get(here, cookie, "/trailer")


@pytest.mark.parametrize("head", ["", "Upgrade: websocket\r\n", "Connection: Upgrade\r\n"])
async def test_half_a_switch_of_protocols_is_none(head: str) -> None:
    async with scripted() as (here, app, cookie):
        app.answers = {"/ws": f"HTTP/1.1 101 Switching Protocols\r\n{head}\r\n".encode() + STRANGE}
        asked = f"GET /ws HTTP/1.1\r\n{UPGRADE}\r\nHost: {here.netloc}\r\nCookie: {cookie}\r\n\r\n"
        answer = await ask(here, asked.encode())
        assert statuses(answer)[0] == 502 and b"evil" not in answer


async def test_a_reader_who_takes_nothing_of_a_short_answer_is_not_read_either() -> None:
    """Who asks on and on and reads nothing has answers of a megabyte at most waiting in this process."""
    async with scripted() as (here, app, cookie):
        app.answers = {"/": b"HTTP/1.1 200 OK\r\nContent-Length: 500000\r\n\r\n" + bytes(500_000)}
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port, limit=1024)
        request = f"GET / HTTP/1.1\r\nHost: {here.netloc}\r\nCookie: {cookie}\r\n\r\n".encode()
        writer.write(request * 200)
        before = -1
        while (asked := sum(map(len, app.paths))) != before:
            before = asked
            await asyncio.sleep(0.5)
        assert asked < 100
        writer.transport.abort()
        del reader
