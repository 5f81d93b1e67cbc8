"""What an app has not read of one visitor's request never becomes a part of another visitor's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import Client
from django.utils import timezone

from backendai.domain.accounts.sign_in.credentials import Credential
from backendai.domain.cluster.site import change_site
from backendai.domain.compute.services.apps.public import open_to_everybody
from tests.appproxy.stage import Stage, lead_to, stage
from tests.appproxy.test_raw import send
from tests.patience import patient

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]
_UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket"
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


class EarlyApp:
    """Answers each head at once and reads no body: what follows a head is the next request to it."""

    def __init__(self) -> None:
        self.connections: list[list[bytes]] = []
        self.raw: list[bytearray] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads: list[bytes] = []
        raw = bytearray()
        self.connections.append(heads)
        self.raw.append(raw)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                heads.append(head)
                path = head.split(b" ")[1]
                if path.startswith(b"/switch"):
                    writer.write(_SWITCH)
                    while data := await reader.read(65536):
                        raw += data
                    return
                early = b"HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n"
                writer.write(early if path.startswith(b"/early") else _OK)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @property
    def lines(self) -> list[bytes]:
        """The request lines as this app understood them."""
        return [head.split(b"\r\n")[0] for heads in self.connections for head in heads]


@asynccontextmanager
async def early_stage() -> AsyncIterator[tuple[Stage, EarlyApp]]:
    app = EarlyApp()
    server = await asyncio.start_server(app.serve, "127.0.0.1", 0)
    async with stage() as here:
        await sync_to_async(lead_to)(here.session, server.sockets[0].getsockname()[1])
        yield here, app
    server.close()


async def victims_cookie(here: Stage) -> str:
    """Return the cookie of an administrator who looks at Alice's app."""
    browser = Client()
    await sync_to_async(browser.force_login)(here.cast.dana)
    return await here.enter(here.cast.dana, credential=Credential(login=browser.session.session_key or ""))


async def test_an_upgrade_that_announces_a_body_is_refused_and_eats_nothing_of_the_next_visitor() -> None:
    async with early_stage() as (here, app):
        mine, theirs = await here.enter(), await victims_cookie(here)
        for more in ("Content-Length: 60", "Transfer-Encoding: chunked"):
            answer = await send(here, mine, f"GET /early HTTP/1.1\r\n{_UPGRADE}\r\n{more}")
            assert answer.startswith(b"HTTP/1.1 400 ") and b"upgrade-with-body" in answer
        page = await here.ask("GET", "/victim-1", cookie=theirs)
        assert (page.status, await page.read()) == (200, b"ok")
        assert app.lines == [b"GET /victim-1 HTTP/1.1"]


async def test_a_refused_upgrade_gives_its_connection_to_nobody() -> None:
    async with early_stage() as (here, app):
        mine = await here.enter()
        answer = await send(here, mine, f"GET /early HTTP/1.1\r\n{_UPGRADE}\r\nContent-Length: 0\r\nConnection: close")
        assert answer.startswith(b"HTTP/1.1 400 No")
        assert (await here.ask("GET", "/next", cookie=mine)).status == 200
        assert [len(heads) for heads in app.connections] == [1, 1]
        assert b"content-length" not in app.connections[0][0].lower()


async def test_a_body_that_the_app_leaves_unread_never_meets_another_visitor() -> None:
    async with early_stage() as (here, app):
        mine, theirs = await here.enter(), await victims_cookie(here)
        smuggled = b"GET /stolen HTTP/1.1\r\nHost: x\r\nX-Eat: "
        head = f"POST /lazy HTTP/1.1\r\nContent-Length: {len(smuggled)}\r\nConnection: close"
        assert b" 200 OK" in await send(here, mine, head, smuggled)
        page = await here.ask("GET", "/victim-2", cookie=f"{theirs}; app-login=secret")
        assert (page.status, await page.read()) == (200, b"ok")
        (first, *_), (second, *_) = app.connections
        assert (first.split(b" ")[1], second.split(b" ")[1]) == (b"/lazy", b"/victim-2")
        assert all(b"app-login" not in head for head in app.connections[0])


async def test_an_answer_before_the_body_was_sent_ends_the_connection() -> None:
    async with early_stage() as (here, app):
        mine = await here.enter()
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        head = f"POST /lazy HTTP/1.1\r\nHost: {here.netloc}\r\nCookie: {mine}\r\nContent-Length: 50\r\n\r\n"
        writer.write(head.encode() + b"only a part")
        assert b" 200 OK" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), patient(5))
        assert (await here.ask("GET", "/next", cookie=mine)).status == 200
        writer.close()
        assert app.lines == [b"POST /lazy HTTP/1.1", b"GET /next HTTP/1.1"]
        assert len(app.connections) == 2


async def test_strangers_at_an_open_app_do_not_meet_each_others_bodies() -> None:
    def open_it(here: Stage) -> None:
        change_site(here.cast.dana, {"public_apps": True}, now=timezone.now())
        open_to_everybody(here.cast.alice, here.session, "notes", now=timezone.now())

    async with early_stage() as (here, app):
        await sync_to_async(open_it)(here)
        assert (await here.ask("POST", "/lazy", data=b"GET /stolen HTTP/1.1\r\nX-Eat: ")).status == 200
        assert (await here.ask("GET", "/another")).status == 200
        assert [[head.split(b" ")[1] for head in heads] for heads in app.connections] == [[b"/lazy"], [b"/another"]]


async def test_requests_of_one_visitor_still_share_a_connection() -> None:
    async with early_stage() as (here, app):
        mine = await here.enter()
        for _ in range(3):
            assert await (await here.ask("GET", "/page", cookie=mine)).read() == b"ok"
        assert [len(heads) for heads in app.connections] == [3]


async def test_an_app_that_switches_protocols_unasked_gets_nothing_more_of_the_visitor() -> None:
    async with early_stage() as (here, app):
        mine = await here.enter()
        secret = f"GET /secret HTTP/1.1\r\nHost: {here.netloc}\r\nCookie: {mine}\r\n\r\n".encode()
        answer = await send(here, mine, "GET /switch HTTP/1.1", secret)
        assert answer.startswith(b"HTTP/1.1 502 ") and answer.count(b"HTTP/1.1") == 1
        assert app.raw == [bytearray()]
        asked: Any = await send(here, mine, f"GET /switch HTTP/1.1\r\n{_UPGRADE}", b"frames")
        assert asked.startswith(b"HTTP/1.1 101 ")
        assert app.raw[1] == b"frames"
