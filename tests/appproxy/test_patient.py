"""Idle, half and too many connections do not keep others out of apps."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from backendai.gates.appproxy import connection_limits as patient
from backendai.gates.appproxy import relay
from tests.appproxy.stage import Stage, stage

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]


async def ends(reader: asyncio.StreamReader, seconds: float = 2.0) -> bool:
    """Return whether the proxy closes the connection."""
    try:
        async with asyncio.timeout(seconds):
            while await reader.read(65536):
                pass
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True
    return True


async def connect(here: Stage, sent: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
    writer.write(sent)
    return reader, writer


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n"])
async def test_it_waits_for_a_head_only_so_long(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(patient, "HEAD_SECONDS", 0.2)
    async with stage() as here:
        reader, writer = await connect(here, sent)
        assert await ends(reader)
        writer.close()
        websocket = await here.websocket(await here.enter())
        await asyncio.sleep(0.5)
        assert await websocket.receive_str() == "welcome"
        await websocket.send_str("still here")
        assert await websocket.receive_str() == "STILL HERE"
        await websocket.close()


async def test_an_idle_connection_and_half_a_second_head_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patient, "IDLE_SECONDS", 0.3)
    async with stage() as here:
        for more in (b"", b"GET /half HTTP/1.1\r\nHost: x\r\n"):
            reader, writer = await connect(here, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + more)
            assert b"200" in await reader.readline()
            assert await ends(reader)
            writer.close()


async def test_a_body_that_stands_still_gives_up_its_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "BODY_SECONDS", 0.3)
    async with stage() as here:
        head = (
            f"POST /count HTTP/1.1\r\nHost: {here.netloc}\r\nCookie: {await here.enter()}\r\nContent-Length: 50\r\n\r\n"
        )
        reader, writer = await connect(here, head.encode() + b"a part")
        assert (await asyncio.wait_for(reader.readline(), 3)).startswith(b"HTTP/1.1 502")
        writer.close()


async def test_a_code_of_unknown_length_is_not_read() -> None:
    async with stage() as here:
        head = f"POST /.backendai/enter HTTP/1.1\r\nHost: {here.netloc}\r\nTransfer-Encoding: chunked\r\n\r\n"
        reader, writer = await connect(here, head.encode() + b"4000\r\n")
        assert (await asyncio.wait_for(reader.readline(), 2)).startswith(b"HTTP/1.1 405")
        writer.close()


@pytest.mark.parametrize("proxies", [[], ["127.0.0.0/8"]])
async def test_one_address_holds_only_so_many_connections(
    monkeypatch: pytest.MonkeyPatch, settings: Any, proxies: list[str]
) -> None:
    monkeypatch.setattr(patient, "MOST_OF_ADDRESS", 5)
    settings.PROXIES = proxies
    async with stage() as here:
        held = [await connect(here) for _ in range(5)]
        reader, writer = await connect(here)
        assert await ends(reader, 0.5) is (not proxies)
        writer.close()
        for _, one in held:
            one.close()
        await asyncio.sleep(0.1)
        assert (await here.ask("GET", "/healthz", headers={"Host": "127.0.0.1"})).status == 200


@pytest.mark.parametrize("limit", ["MOST_OF_VISITOR", "MOST_OF_KERNEL"])
async def test_one_visitor_and_one_session_have_only_so_much_under_way(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(relay, limit, 2)
    async with stage() as here:
        cookie = await here.enter()
        held = [await here.websocket(cookie) for _ in range(2)]
        answer = await here.ask("GET", "/page", cookie=cookie)
        assert (answer.status, (await answer.json())["code"]) == (429, "too-many-requests")
        for websocket in held:
            await websocket.close()
        async with asyncio.timeout(5):
            while (await here.ask("GET", "/page", cookie=cookie)).status != 200:
                await asyncio.sleep(0.05)
