"""What passes between browser and app byte for byte, what does not pass, and what is said of answers that cannot."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from tests.appproxy.stage import Stage, lead_to, stage
from tests.appproxy.test_raw import send
from tests.effort import some
from tests.patience import patient

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
EXPECT = "Expect: 100-continue\r\nContent-Length: 5"


class RawApp:
    """Sends ``answer`` (a head without its last line, and a body) to every request."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.answer, self.port = OK + b"\r\nok", 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self.answer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def raw_stage() -> AsyncIterator[tuple[Stage, RawApp]]:
    app = RawApp()
    server = await asyncio.start_server(app.serve, "127.0.0.1", 0)
    app.port = server.sockets[0].getsockname()[1]
    async with stage() as here:
        await sync_to_async(lead_to)(here.session, app.port)
        yield here, app
    server.close()


async def converse(here: Stage, head: str, body: bytes) -> tuple[bytes, bytes]:
    """Send a head; returns the first answer to it, and what follows the body, which is sent if that is asked for."""
    reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
    writer.write(f"{head}\r\nHost: {here.netloc}\r\n\r\n".encode())
    async with asyncio.timeout(patient(10)):
        first = await reader.readuntil(b"\r\n\r\n")
        if b" 100 " in first:
            writer.write(body)
            rest = await reader.readuntil(b"\r\n\r\n")
        else:
            rest = await reader.read()
    writer.close()
    return first, rest


async def test_a_client_that_waits_is_asked_for_its_body_once_the_request_is_accepted() -> None:
    async with stage() as here:
        cookie = await here.enter()
        first, rest = await converse(here, f"PUT /page HTTP/1.1\r\nCookie: {cookie}\r\n{EXPECT}", b"12345")
        assert first == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert rest.startswith(b"HTTP/1.1 200 ")
        assert here.app.bodies == [b"12345"]


async def test_refusals_come_without_the_body_and_end_the_connection() -> None:
    heads = "PUT /page HTTP/1.1", "POST /.backendai/enter HTTP/1.1"
    async with stage() as here:  # each waits for a body for ten seconds
        large = EXPECT.replace(": 5", ": 5000000")
        for first, _ in await asyncio.gather(*(converse(here, f"{head}\r\n{large}", b"") for head in heads)):
            assert first.split(b" ")[1] in (b"401", b"405")
            assert b"connection: close" in first.lower()
        assert here.app.requests == []


async def test_header_bytes_pass_unchanged_both_ways() -> None:
    async with raw_stage() as (here, app):
        named = b'Content-Disposition: attachment; filename="\xe9 \xc3\xa9.txt"\r\n'
        app.answer = b"HTTP/1.1 200 D\xe9j\xe0\r\nContent-Length: 2\r\n" + named + b"\r\nok"
        answer = await send(here, await here.enter(), "GET / HTTP/1.1\r\nX-Latin: \xe9\r\nX-Utf: \xc3\xa9")
        assert answer.startswith(b"HTTP/1.1 200 D\xe9j\xe0\r\n") and named in answer
        assert b"X-Latin: \xe9\r\n" in app.heads[0] and b"X-Utf: \xc3\xa9\r\n" in app.heads[0]


async def test_odd_bytes_in_a_credential_are_a_refusal() -> None:
    async with stage() as here:
        for line in ("Cookie: backendai-app=\xe9", "Authorization: Bearer \xe9"):
            answer = await send(here, "a=b", f"GET / HTTP/1.1\r\n{line}")
            assert answer.startswith(b"HTTP/1.1 401 "), answer


BAD_ANSWERS = {
    b"".join(b"X-%d: a\r\n" % number for number in range(129)): "more than 128 headers",
    b"X-Long: " + b"a" * 40_000 + b"\r\n": "longer than 32 KiB",
    b"Content-Length: 2\r\n": "Duplicate Content-Length",
    b"X-Null: a\0b\r\n": "not valid HTTP",
    b"X-Control: a\x01b\r\n": "control character",
    b"X-Return: a\rX-More: b\r\n": "not valid HTTP",
}


async def test_what_is_wrong_with_an_answer_is_said() -> None:
    async with raw_stage() as (here, app):
        cookie = await here.enter()
        for lines, told in BAD_ANSWERS.items():
            app.answer = OK + lines + b"\r\nok"
            answer = await here.ask("GET", "/", cookie=cookie)
            said = await answer.json()
            assert (answer.status, said["code"]) == (502, "app-answer-invalid"), said
            assert told in said["detail"]
        app.answer = b""
        assert (await (await here.ask("GET", "/", cookie=cookie)).json())["code"] == "app-broke-off"


@some("method", ["PROPFIND", "PROPPATCH", "LOCK", "UNLOCK", "REPORT", "SEARCH", "QUERY"], 2)
async def test_methods_of_webdav_pass(method: str) -> None:
    async with stage() as here:
        answer = await here.ask(method, "/dav", cookie=await here.enter(), data=b"<x/>")
        assert (answer.status, await answer.text()) == (200, f"{method} /dav")
        assert here.app.bodies == [b"<x/>"]


async def test_a_redirect_to_where_the_app_sees_itself_leads_to_its_address() -> None:
    async with raw_stage() as (here, app):
        cookie = await here.enter()
        led = {
            f"http://127.0.0.1:{app.port}/a?b=%2F#c": "/a?b=%2F#c",
            f"https://localhost:{app.port}//evil.example/": "/evil.example/",
            f"http://[::1]:{app.port}": "/",
            f"{here.origin}/x": f"{here.origin}/x",
            "http://127.0.0.1:1/": "http://127.0.0.1:1/",
            f"http://example.org:{app.port}/": f"http://example.org:{app.port}/",
            "/tree": "/tree",
            "http://[::1/": "http://[::1/",
        }
        for said, expected in led.items():
            app.answer = f"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: {said}\r\n\r\n".encode()
            answer = await here.ask("GET", "/", cookie=cookie)
            assert answer.headers["Location"] == expected


def basic(text: str) -> str:
    return "Basic " + b64encode(text.encode()).decode()


OURS = [
    "Token token=bai_secret",
    "bearer  bsk-secret",
    "BackendAI signMethod=HMAC-SHA256, credential=A:b",
    "bai_secret",
]
OURS += [basic("bai_secret:"), basic("me:bsk-secret")]


async def test_a_password_for_the_app_itself_passes_and_no_credential_of_the_platform() -> None:
    async with stage() as here:
        cookie = await here.enter()
        for own in (basic("me:secret"), "Bearer eyJhbGciOi.x.y", 'Digest username="me"'):
            await here.ask("GET", "/", cookie=cookie, headers={"Authorization": own})
            assert here.app.requests[-1].headers["Authorization"] == own
        for ours in OURS:
            await here.ask("GET", "/", cookie=cookie, headers={"Authorization": ours})
            assert "Authorization" not in here.app.requests[-1].headers, ours
        here.app.answer_headers = [("WWW-Authenticate", 'Basic realm="notes"')]
        answer: Any = await here.ask("GET", "/", cookie=cookie)
        assert answer.headers["WWW-Authenticate"] == 'Basic realm="notes"'
