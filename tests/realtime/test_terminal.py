"""The terminal's way from the browser to the node's gateway and back."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import sync_to_async
from django.contrib.sessions.models import Session

from backendai.domain.accounts.models import AccessToken
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.portal.realtime import terminal as terminals
from tests.cast import Cast
from tests.factories import make_running_session, make_session
from tests.patience import patient
from tests.realtime.sockets import fake_gateway, page, script, socket

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]


@pytest.fixture
def running(cast: Cast) -> ComputeSession:
    return make_running_session(cast.alice, cluster_size=2)


def address(session: Any, query: str = "") -> str:
    return f"/ws/sessions/{getattr(session, 'pk', session)}/terminal/{query}"


async def point_to(url: str) -> None:
    await Agent.objects.aupdate(gateway_url=url)


async def test_it_relays_bytes_both_ways_and_text_unread(cast: Cast, running: ComputeSession) -> None:
    headers = await sync_to_async(page)(cast.alice)
    async with fake_gateway() as (gateway, url):
        await point_to(url)
        async with socket(address(running), headers) as terminal:
            assert terminal.accepted
            assert await terminal.message() == {"type": "ready"}
            await terminal.send(b"ls \xc3\xa9\x00")
            assert await terminal.frame() == b"LS \xc3\xa9\x00"
            await terminal.send('{"type": "resize", "rows": 50}')
            await terminal.send(b"done")
            assert await terminal.bytes_until(b"DONE") == b"DONE"
            assert gateway.texts == ['{"type": "resize", "rows": 50}']
        await asyncio.wait_for(gateway.terminal_closed.wait(), patient(5))


async def test_it_dials_the_main_kernel_with_a_ticket_for_just_that(cast: Cast, running: ComputeSession) -> None:
    headers = await sync_to_async(script)(cast.alice)
    main = await running.kernels.aget(rank=0)
    async with fake_gateway() as (gateway, url):
        await point_to(url)
        async with socket(address(running, "?rows=50&cols=99999&ack=0"), headers):
            request, ticket = gateway.requests[-1], gateway.ticket("terminal")
    assert request.path == f"/kernels/{main.pk}/terminal"
    assert dict(request.query) == {"name": "web", "rows": "50", "cols": "1000", "ack": "0"}
    assert (ticket.kernel_id, ticket.generation) == (main.pk, main.generation)


@pytest.mark.parametrize(
    ("shell", "name"), [("1", "web"), ("2", "web-2"), ("99", "web-8"), ("0", "web"), ("-1", "web"), ("x;y", "web")]
)
async def test_each_shell_has_a_name_of_its_own(cast: Cast, running: ComputeSession, shell: str, name: str) -> None:
    headers = await sync_to_async(script)(cast.alice)
    async with fake_gateway() as (gateway, url):
        await point_to(url)
        async with socket(address(running, f"?shell={shell}"), headers):
            assert gateway.requests[-1].query["name"] == name


async def test_it_dials_the_kernel_that_is_asked_for(cast: Cast, running: ComputeSession) -> None:
    headers = await sync_to_async(script)(cast.alice)
    sub = await running.kernels.aget(rank=1)
    async with fake_gateway() as (gateway, url):
        await point_to(url)
        async with socket(address(running, f"?kernel={sub.pk}&rows=x&cols=-1"), headers):
            request = gateway.requests[-1]
    assert request.path == f"/kernels/{sub.pk}/terminal"
    assert (request.query["rows"], request.query["cols"], request.query["ack"]) == ("24", "80", "1")


@pytest.mark.parametrize(("typed", "code"), [(4000, 4000), (4001, 4001), (4003, 4003), (1012, 1012), (1011, 1011)])
async def test_it_passes_the_gateways_close_on(cast: Cast, running: ComputeSession, typed: int, code: int) -> None:
    headers = await sync_to_async(page)(cast.alice)
    async with fake_gateway() as (_, url):
        await point_to(url)
        async with socket(address(running), headers) as terminal:
            await terminal.send(f"close {typed}".encode())
            assert await terminal.closing() == (code, "as typed")


async def test_it_tells_a_lost_node_from_a_shell_that_ended(cast: Cast, running: ComputeSession) -> None:
    headers = await sync_to_async(page)(cast.alice)
    async with fake_gateway() as (_, url):
        await point_to(url)
        async with socket(address(running), headers) as terminal:
            await terminal.send(b"die")
            assert (await terminal.closing())[0] == 1011


async def test_it_says_when_the_node_does_not_answer(cast: Cast, running: ComputeSession) -> None:
    headers = await sync_to_async(page)(cast.alice)
    await point_to("http://127.0.0.1:1")
    async with socket(address(running), headers) as terminal:
        assert terminal.accepted
        assert await terminal.closing() == (1011, "The agent does not answer.")


@pytest.mark.parametrize("who", ["bob", "charlie"])
async def test_it_refuses_strangers_without_dialling(cast: Cast, running: ComputeSession, who: str) -> None:
    headers = await sync_to_async(page)(getattr(cast, who))
    async with fake_gateway() as (gateway, url):
        await point_to(url)
        async with socket(address(running), headers) as foreign, socket(address(uuid4()), headers) as missing:
            assert foreign.refused == missing.refused == (4003, "Session not found.")
        assert gateway.requests == []


async def test_it_refuses_a_foreign_kernel_under_an_own_session(cast: Cast, running: ComputeSession) -> None:
    theirs = await running.kernels.aget(rank=0)
    own = await sync_to_async(make_running_session)(cast.bob)
    headers = await sync_to_async(page)(cast.bob)
    for name in (str(theirs.pk), "nonsense", "%00"):
        async with socket(address(own, f"?kernel={name}"), headers) as terminal:
            assert await terminal.closing() == (4003, "There is no such kernel.")


async def test_it_refuses_a_session_that_does_not_run(cast: Cast, running: ComputeSession) -> None:
    pending = await sync_to_async(make_session)(cast.alice)
    await sync_to_async(terminate_session)(running, cast.alice)
    headers = await sync_to_async(page)(cast.alice)
    for session in (pending, running):
        async with socket(address(session), headers) as terminal:
            assert (await terminal.closing())[0] == 4004


@pytest.mark.parametrize("end", ["logout", "disable", "password", "hand-over"])
async def test_it_closes_when_the_login_ends(
    cast: Cast, running: ComputeSession, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backendai.portal.realtime.guarded.RECHECK_SECONDS", 0.05)
    headers = await sync_to_async(page)(cast.alice)
    async with fake_gateway() as (gateway, url):
        await point_to(url)
        async with socket(address(running), headers) as terminal:
            assert await terminal.message() == {"type": "ready"}
            await sync_to_async(end_login)(cast, end)
            assert (await terminal.closing())[0] == 4003
            await asyncio.wait_for(gateway.terminal_closed.wait(), patient(5))


async def test_it_closes_when_the_token_is_revoked(
    cast: Cast, running: ComputeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backendai.portal.realtime.guarded.RECHECK_SECONDS", 0.05)
    headers = await sync_to_async(script)(cast.alice)
    async with fake_gateway() as (_, url):
        await point_to(url)
        async with socket(address(running), headers) as terminal:
            await terminal.frame()
            await AccessToken.objects.all().adelete()
            assert (await terminal.closing())[0] == 4003


async def test_a_token_that_may_only_look_sees_events_and_logs_but_opens_no_terminal(
    cast: Cast, running: ComputeSession
) -> None:
    headers = await sync_to_async(script)(cast.alice, scopes=["read"])
    async with fake_gateway() as (gateway, url):
        await point_to(url)
        gateway.more_log.set()
        async with socket(address(running), headers) as terminal:
            assert terminal.refused == (4003, "The token is not valid, or lacks the scope sessions.")
        assert not gateway.requests
        for path in ("/ws/events/", f"/ws/sessions/{running.pk}/logs/"):
            async with socket(path, headers) as one:
                assert (await one.event())["type"] == "websocket.send", path


async def test_it_stays_open_while_the_owner_is_let_in(
    cast: Cast, running: ComputeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def count(*_: Any) -> bool:
        nonlocal looks
        looks += 1
        return True

    monkeypatch.setattr("backendai.portal.realtime.guarded.RECHECK_SECONDS", 0.001)
    monkeypatch.setattr("backendai.portal.realtime.relay.may_see", count)
    headers = await sync_to_async(page)(cast.alice)
    async with fake_gateway() as (_, url):
        await point_to(url)
        async with socket(address(running), headers) as terminal:
            while looks < 3:
                await terminal.send(b"key")
                await terminal.bytes_until(b"KEY")


async def test_it_needs_no_channel_layer(cast: Cast, running: ComputeSession, settings: Any) -> None:
    settings.CHANNEL_LAYERS = {}
    headers = await sync_to_async(page)(cast.alice)
    async with fake_gateway() as (_, url):
        await point_to(url)
        async with socket(address(running), headers) as terminal:
            assert await terminal.message() == {"type": "ready"}


def end_login(cast: Cast, end: str) -> None:
    if end == "logout":
        Session.objects.all().delete()
    elif end == "disable":
        cast.alice.is_active = False
        cast.alice.save()
    elif end == "password":
        cast.alice.set_password("another good password")
        cast.alice.save()
    else:
        ComputeSession.objects.update(owner=cast.bob)


async def test_what_is_typed_counts_as_use_and_what_a_page_says_by_itself_does_not(
    cast: Cast, running: ComputeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched: list[Any] = []
    monkeypatch.setattr(terminals.meter, "touch", touched.append)
    headers = await sync_to_async(page)(cast.alice)
    async with fake_gateway() as (gateway, url):
        await point_to(url)
        async with socket(address(running), headers) as terminal:
            assert await terminal.message() == {"type": "ready"}
            assert touched == [running.pk], "it was opened"
            await terminal.send('{"type": "ack", "bytes": 7}')
            await terminal.send(b"ls")
            assert await terminal.frame() == b"LS"
            assert gateway.texts and touched == [running.pk] * 2


async def test_one_person_and_one_session_have_only_so_many_terminals(
    cast: Cast, running: ComputeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = await sync_to_async(page)(cast.alice)
    async with fake_gateway() as (gateway, url):
        await point_to(url)
        for name in ("MOST_STREAMS", "MOST_OF_KERNEL"):
            monkeypatch.undo()
            monkeypatch.setattr(f"backendai.portal.realtime.relay.{name}", 1)
            async with socket(address(running), headers) as one:
                assert await one.message() == {"type": "ready"}
                asked = len(gateway.requests)
                async with socket(address(running), headers) as two:
                    assert (await two.closing())[0] == 4029
                assert len(gateway.requests) == asked, "the node hears nothing of it"
