"""What passes between a browser and an app counts as use of the session; a page that only answers pings does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from backendai.domain.compute.models import SessionTraffic
from backendai.domain.compute.services.records.traffic import Meter
from backendai.gates.appproxy import relay
from tests.appproxy.stage import stage
from tests.patience import patient

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The sessions that were used, each time."""
    found: list[Any] = []
    meter = Meter()
    monkeypatch.setattr(meter, "touch", found.append)
    monkeypatch.setattr(relay, "meter", meter)
    return found


async def test_requests_and_frames_count_and_answers_to_pings_do_not(touched: list[Any]) -> None:
    async with stage() as here:
        cookie = await here.enter()
        await here.ask("GET", "/page", cookie="app=nobody")
        assert touched == []
        await here.ask("GET", "/page", cookie=cookie)
        assert set(touched) == {here.session.pk}
        async with await here.websocket(cookie) as websocket:
            assert await websocket.receive_str() == "welcome"
            touched.clear()
            await here.app.websockets[0].ping(b"there?")
            await here.app.websockets[0].send_str("news")
            assert await websocket.receive_str() == "news"  # and the ping before it was answered
            await asyncio.sleep(0.1)
            assert touched == []
            await websocket.send_str("hello")
            assert await websocket.receive_str() == "HELLO"
            assert touched == [here.session.pk]


async def test_a_long_download_is_use_all_the_while(touched: list[Any]) -> None:
    async with stage() as here:
        cookie = await here.enter()
        answer = await here.ask("GET", f"/stream/{4 * 2**20}", cookie=cookie)
        await answer.read()
        assert len(touched) > 10


async def test_it_is_written_to_the_database_without_anybody_waiting() -> None:
    async with stage() as here:
        await here.ask("GET", "/page", cookie=await here.enter())
        async with asyncio.timeout(patient(30)):
            while not await sync_to_async(SessionTraffic.objects.filter(session=here.session).exists)():
                await asyncio.sleep(0.2)
