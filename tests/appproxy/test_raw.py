"""Requests that no browser sends: one request in is at most one request out, and nothing odd gets through."""

from __future__ import annotations

import asyncio

import pytest

from tests.appproxy.stage import Stage, stage
from tests.effort import some

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"


async def send(here: Stage, cookie: str, head: str, body: bytes = b"", *, host: str = "") -> bytes:
    """Send these lines with the visitor's cookie; returns what comes back until the other side closes or rests."""
    reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
    text = f"{head}\r\nHost: {host or here.netloc}\r\nCookie: {cookie}\r\n\r\n"
    writer.write(text.encode("latin-1") + body)
    answer = b""
    try:
        while data := await asyncio.wait_for(reader.read(65536), 1.0):
            answer += data
    except TimeoutError:
        pass
    writer.close()
    return answer


@some(
    ("head", "body"),
    [
        ("POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked", b"0\r\n\r\n" + SMUGGLED),
        ("POST / HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 5", SMUGGLED),
        ("POST / HTTP/1.1\r\nContent-Length: +5", b"12345"),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: xchunked", b"0\r\n\r\n" + SMUGGLED),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity", b"0\r\n\r\n" + SMUGGLED),
        ("POST / HTTP/1.1\r\nTransfer-Encoding : chunked", b"0\r\n\r\n"),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked", b"5;\n\nabc"),
        ("GET / HTTP/1.1\r\nX-Fold: a\r\n b", b""),
        ("GET / HTTP/1.1\r\nX-Null: a\0b", b""),
        ("GET / HTTP/1.1\r\nX Space: a", b""),
        ("GET / HTTP/1.1\r\n: nameless", b""),
        (f"GET / HTTP/1.1\r\nX-Long: {'a' * 100_000}", b""),
        ("GET http://other.example/ HTTP/1.1", b""),
        ("CONNECT other.example:443 HTTP/1.1", b""),
        ("TRACE / HTTP/1.1", b""),
        ("GET / HTTP/3.7", b""),
        ("G\u00c8T / HTTP/1.1", b""),
    ],
    5,
)
async def test_it_refuses_what_could_be_read_in_two_ways(head: str, body: bytes) -> None:
    async with stage() as here:
        answer = await send(here, await here.enter(), head, body)
        statuses = [line.split(b" ")[1] for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.")]
        assert statuses and set(statuses) <= {b"400", b"404", b"405", b"501"}, answer
        assert here.app.requests == []


async def test_two_hosts_in_one_request_open_nothing() -> None:
    async with stage() as here:
        cookie = await here.enter()
        answer = await send(here, cookie, "GET / HTTP/1.1\r\nHost: other-1.apps.localhost")
        assert b" 200 " not in answer
        assert here.app.requests == []


async def test_an_upgrade_to_something_else_is_an_ordinary_request() -> None:
    async with stage() as here:
        head = (
            "GET /page HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA"
        )
        answer = await send(here, await here.enter(), head)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert {"Upgrade", "HTTP2-Settings"} & set(here.app.requests[0].headers) == set()


async def test_requests_that_follow_each_other_on_one_connection_are_told_apart() -> None:
    async with stage() as here:
        cookie = await here.enter()
        second = f"GET /second HTTP/1.1\r\nHost: {here.netloc}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
        answer = await send(here, cookie, "POST /first HTTP/1.1\r\nContent-Length: 5", b"12345" + second.encode())
        assert answer.count(b"HTTP/1.1 200 ") == 2
        assert [request.path for request in here.app.requests] == ["/first", "/second"]
        assert here.app.bodies == [b"12345", b""]


@some("path", ["/..%2f..%2fetc", "/%2e%2e/", "//evil.example/", "/a%00b"], 2)
async def test_odd_paths_arrive_at_the_app_as_they_were_sent(path: str) -> None:
    async with stage() as here:
        answer = await here.ask("GET", path, cookie=await here.enter())
        assert answer.status == 200
        assert [request.raw_path for request in here.app.requests] == [path]


async def test_answers_without_a_body_stay_without_one() -> None:
    async with stage() as here:
        cookie = await here.enter()
        head = await here.ask("HEAD", "/page", cookie=cookie)
        assert (head.status, await head.read()) == (200, b"")
        assert head.headers["Content-Length"] == str(len("HEAD /page"))
        raw = await send(here, cookie, "GET /page HTTP/1.0")
        assert raw.endswith(b"GET /page")
