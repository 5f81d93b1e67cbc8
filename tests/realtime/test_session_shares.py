"""Sockets and apps of shared sessions: who opens them, what viewers may send, and when they are cut."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import Client
from django.utils import timezone

from backendai.domain.accounts.services import create_token
from backendai.domain.activity.models import AuditEntry
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import SessionShare
from backendai.domain.compute.services.launching.sharing import share_session, unshare_session
from backendai.portal.realtime import terminal as terminals
from tests.appproxy.stage import stage
from tests.cast import make_cast
from tests.realtime.sockets import Socket, fake_gateway, page, socket
from tests.test_census import SOCKETS, World, made_world
from tests.test_session_shares import share

RIGHTS = {"terminal": {"view", "use"}, "logs": {"view", "use"}, "runs": {"use"}}


def test_the_table_knows_all_sockets() -> None:
    assert {route.split("/")[-2] for route in SOCKETS if "session_id" in route} == set(RIGHTS)


@pytest.fixture
def committed_world(transactional_db: None) -> Iterator[World]:
    with made_world(make_cast()) as world:
        yield world


@pytest.mark.django_db(transaction=True)
@pytest.mark.asyncio
@pytest.mark.parametrize("right", ["view", "use", ""])
async def test_sockets_open_as_the_right_says_and_close_when_it_is_taken_back(
    committed_world: World, right: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backendai.portal.realtime.guarded.RECHECK_SECONDS", 0.1)
    world = committed_world
    async with fake_gateway() as (_gateway, url):
        await Agent.objects.aupdate(gateway_url=url)
        headers = await sync_to_async(page)(world.cast.bob)
        for name, rights in RIGHTS.items():
            given = await sync_to_async(share)(world, right) if right else None
            path = f"/ws/sessions/{world.session.pk}/{name}/"
            async with socket(path, headers) as one:
                if right not in rights:
                    assert one.refused == (4003, "Session not found."), name
                    continue
                assert (await one.event())["type"] == "websocket.send", name
                assert given is not None
                await sync_to_async(unshare_session)(world.session, world.cast.alice, given.pk)
                assert await closes(one) == 4003, name
            async with socket(path, headers) as again:
                assert again.refused == (4003, "Session not found."), name


async def closes(one: Socket) -> int:
    while True:
        event = await one.event()
        if event["type"] == "websocket.close":
            return int(event["code"])


@pytest.mark.django_db(transaction=True)
@pytest.mark.asyncio
async def test_nothing_that_viewers_send_reaches_the_shell(committed_world: World) -> None:
    world = committed_world
    await sync_to_async(share)(world, "view")
    headers = await sync_to_async(page)(world.cast.bob)
    touched: list[Any] = []
    async with fake_gateway() as (gateway, url):
        await Agent.objects.aupdate(gateway_url=url)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(terminals.meter, "touch", touched.append)
            async with socket(f"/ws/sessions/{world.session.pk}/terminal/", headers) as terminal:
                assert await terminal.message() == {"type": "ready"}
                assert gateway.requests[-1].query["name"] == "view-web"
                acknowledged = [json.dumps({"type": "ack", "bytes": number}) for number in (7, 8)]
                sent: list[str | bytes] = [
                    b"rm -rf ~\n", acknowledged[0], '{"type": "resize", "rows": 1, "cols": 1}',
                    '{"type": "find", "does": "find", "text": "x"}', '{"type": "ack", "bytes": 1, "type": "resize"}',
                    '{"type": "ack", "bytes": 1, "rows": 1}', acknowledged[1],
                ]  # fmt: skip
                for frame in sent:
                    await terminal.send(frame)
                async with asyncio.timeout(5):
                    while len(gateway.texts) < 2:
                        await asyncio.sleep(0.01)
                assert gateway.texts == acknowledged
                assert await terminal.is_quiet(), "no echo of typed bytes"
    assert touched == [], "who only looks keeps no session alive"
    entry = await AuditEntry.objects.aget(action="session.use", target_id=str(world.session.pk))
    assert (entry.actor_id, entry.details["what"]) == (world.cast.bob.pk, "terminal: view")


@pytest.mark.django_db(transaction=True)
@pytest.mark.asyncio
async def test_apps_open_by_the_right_to_use_and_are_cut_when_it_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backendai.gates.gateways.guard.RECHECK_SECONDS", 0.1)
    async with stage() as here:
        cast, session = here.cast, here.session
        bob = Client()
        await sync_to_async(bob.force_login)(cast.bob)
        address = f"/api/v1/sessions/{session.pk}/apps/notes/"

        def give(right: str) -> SessionShare:
            return share_session(session, cast.alice, right, email=cast.bob.email, now=timezone.now())

        await sync_to_async(give)("view")
        assert (await sync_to_async(bob.post)(address)).status_code == 404
        given = await sync_to_async(give)("use")
        code = (await sync_to_async(bob.post)(address)).json()["code"]
        _, token = await sync_to_async(create_token)(cast.bob, "script", scopes=["sessions"])
        entered = await here.ask("POST", "/.backendai/enter", data={"code": code})
        assert entered.status == 303, await entered.text()
        cookie = entered.headers["Set-Cookie"].split(";")[0]
        websocket = await here.websocket(cookie)
        assert await websocket.receive_str() == "welcome"
        bearer = {"Authorization": f"Bearer {token}"}
        assert (await here.ask("GET", "/page", headers=bearer)).status == 200
        share_used = await SessionShare.objects.aget(pk=given.pk)
        assert share_used.used_by_id == cast.bob.pk
        await sync_to_async(unshare_session)(session, cast.alice, given.pk)
        async with asyncio.timeout(5):
            assert (await websocket.receive()).data != "welcome"
        await asyncio.sleep(0.2)
        assert (await here.ask("GET", "/page", cookie=cookie)).status in (302, 303, 401, 403)
        assert (await here.ask("GET", "/page", headers=bearer)).status in (401, 403, 404)
