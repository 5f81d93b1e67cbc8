"""Replicas, databases, agents and app proxies that fail in the middle of requests to endpoints."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
import uvloop
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import InterfaceError

from backendai.domain.serving.endpoint_table import ReplicaEntry
from backendai.domain.serving.models import DesiredState, Endpoint, ReplicaSight
from backendai.domain.serving.services.endpoints import set_wish
from backendai.domain.serving.services.tokens import create_token, revoke_token
from backendai.gates.appproxy import server as server_module
from backendai.gates.appproxy.endpoints import probes as probes_module
from backendai.gates.appproxy.endpoints import service as service_module
from backendai.gates.appproxy.endpoints import table_cache as keeper_module
from backendai.gates.appproxy.endpoints.replicas import FRESH_SECONDS, Known
from backendai.gates.gateways.exchanges import Question, Tunnels
from backendai.gates.gateways.targets import Target
from backendai.gates.gateways.tunnel import NoTunnel
from tests.appproxy.endpoint_stage import Stage, endpoint_stage
from tests.patience import patient

pytestmark = pytest.mark.django_db(transaction=True)

COMMON = {"Host": "models.apps.localhost"}


@pytest.fixture(autouse=True)
def quick_and_in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.DATA_DIR = tmp_path
    monkeypatch.setattr(service_module, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(service_module, "BUSY_SECONDS", 0.1)
    monkeypatch.setattr(service_module, "TICK_SECONDS", 0.05)
    monkeypatch.setattr(probes_module, "EVERY_SECONDS", 0.05)
    monkeypatch.setattr(probes_module, "FIRST_SECONDS", 0.05)


def known() -> Known:
    return Known(ReplicaEntry("0" * 32, 1, 1, "k", 1, "http://node", 8000, "/health", True), has_answered=True)


def test_the_third_failed_probe_in_a_row_ejects_a_replica() -> None:
    replica, now = known(), FRESH_SECONDS + 1
    replica.note_missed_probe("503", now)
    replica.note_probe(now)
    for _ in range(2):
        replica.note_missed_probe("503", now)
    assert (replica.is_answering, replica.out_until) == (True, 0.0)
    replica.note_missed_probe("503", now)
    assert (replica.is_answering, replica.out_until) == (False, float("inf"))
    replica.note_probe(now)
    assert (replica.is_answering, replica.out_until) == (True, 0.0)


async def error_code(answer: aiohttp.ClientResponse) -> tuple[int, str]:
    return answer.status, (await answer.json())["error"]["code"]


async def broken_off(answer: aiohttp.ClientResponse) -> bool:
    try:
        await answer.read()
    except aiohttp.ClientError:
        return True
    return False


async def asked(here: Stage, path: str = "/stream", number: int = 1) -> aiohttp.ClientResponse:
    """Return an answer that has begun and stands still."""
    here.models[number].gate.clear()
    answer = await here.ask(path=path)
    assert await answer.content.readany() == b"data: one\n\n"
    return answer


def take_logged(caplog: pytest.LogCaptureFixture, number: int) -> None:
    """Expect so many errors in the log, and no other ones."""
    errors = [f"{one.name}: {one.getMessage()} {one.exc_info}" for one in caplog.records if one.levelname == "ERROR"]
    assert len(errors) == number, errors
    caplog.clear()


@pytest.mark.parametrize("error", [InterfaceError("connection already closed"), RuntimeError("unheard of")])
def test_no_error_ends_the_reading_of_the_table(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    async def scene() -> None:
        async with endpoint_stage() as here:
            read, left = keeper_module.read_sign, [error] * 3

            def fails_at_first() -> str:
                if left:
                    raise left.pop()
                return read()

            monkeypatch.setattr(keeper_module, "read_sign", fails_at_first)
            await here.until(lambda: not left, steps=False)
            await sync_to_async(revoke_token)(here.token, here.cast.alice)
            while (await here.ask()).status != 401:
                await asyncio.sleep(0.05)

    uvloop.run(scene())
    take_logged(caplog, 0 if isinstance(error, InterfaceError) else 1)


def test_no_error_ends_the_reports(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with endpoint_stage() as here:
            write, left = service_module.record, [InterfaceError("cursor already closed"), KeyError("one")]

            def fails_at_first(*said: Any, **more: Any) -> None:
                if left:
                    raise left.pop()
                write(*said, **more)

            monkeypatch.setattr(service_module, "record", fails_at_first)
            assert (await here.ask()).status == 200
            await here.until(lambda: here.endpoint.readings.filter(requests=1).exists(), steps=False)

    uvloop.run(scene())
    take_logged(caplog, 1)


def test_a_piece_of_an_answer_stands_for_a_probe_and_a_probe_for_no_answer() -> None:
    one = known()
    one.heard_at = 100.0
    for _ in range(9):
        one.note_missed_probe("It did not answer.", 100.0 + FRESH_SECONDS - 1)
    assert one.is_answering
    for _ in range(3):
        one.note_missed_probe("It did not answer.", 100.0 + FRESH_SECONDS)
    assert (one.is_answering, one.out_until) == (False, float("inf"))
    one.note_probe(120.0)
    for _ in range(3):
        one.note_fault("It broke off.", 120.0)
        one.note_probe(120.0)
    assert one.is_answering
    assert one.out_until > 120.0


def test_a_replica_that_missed_a_probe_is_asked_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with endpoint_stage() as here:
            model = here.models[1]
            model.refuses, before = True, model.probes
            while model.probes == before:
                await asyncio.sleep(0.01)
            monkeypatch.setattr(probes_module, "EVERY_SECONDS", 600.0)
            await here.until(lambda: ReplicaSight.objects.filter(is_answering=False).exists(), steps=False)

    uvloop.run(scene())


@pytest.mark.ci
def test_a_replica_that_is_too_busy_with_a_stream_for_probes_counts_as_answering() -> None:
    async def scene() -> None:
        async with endpoint_stage() as here:
            model = here.models[1]
            model.gate.clear()
            answer = await here.ask(path="/ticks")
            await answer.content.readany()
            model.refuses, before = True, model.probes
            while model.probes < before + 10:
                assert await answer.content.readany()
            reports = await sync_to_async(lambda: list(ReplicaSight.objects.values_list("is_answering", flat=True)))()
            assert reports == [True]
            model.gate.set()
            assert not await broken_off(answer)
            await here.until(lambda: ReplicaSight.objects.filter(is_answering=False).exists(), steps=False)

    uvloop.run(scene())


def test_a_replica_that_breaks_every_answer_leaves_the_rotation_and_its_errors_are_told() -> None:
    async def scene() -> None:
        async with endpoint_stage(2) as here:
            here.models[1].breaks_streams = True
            broken = 0
            while broken < 3:
                answer = await here.ask(path="/stream")
                broken += await broken_off(answer)
            probes = here.models[1].probes
            while here.models[1].probes < probes + 3:  # its probes succeed all the while
                await asyncio.sleep(0.02)
            assert [await broken_off(await here.ask(path="/stream")) for _ in range(10)] == [False] * 10
            await here.until(lambda: ReplicaSight.objects.filter(replica__number=1, errors=3).exists(), steps=False)
            assert await sync_to_async(ReplicaSight.objects.get)(replica__number=1, is_answering=True)

    uvloop.run(scene())


def test_an_answer_that_is_none_or_has_another_length_than_it_says_is_seen_as_broken() -> None:
    async def scene() -> None:
        async with endpoint_stage() as here:
            model = here.models[1]
            model.raw = b"this is no HTTP\r\n\r\n"
            assert await error_code(await here.ask("POST", data=b"x")) == (502, "replica-broken")
            model.raw = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort"
            assert await broken_off(await here.ask("POST", data=b"x"))
            model.raw = (
                b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmore"
            )
            said = [await (await here.ask("POST", data=b"x")).text() for _ in range(2)]
            assert said == ["ok", "1"]
            assert len(model.bodies) == 4

    uvloop.run(scene())


def test_a_node_that_takes_a_connection_and_says_nothing_is_out_of_reach_soon() -> None:
    async def scene(address: str) -> None:
        target = Target(uuid4(), 1, "replica", 8000, address, visitor="v")
        with pytest.raises(NoTunnel) as caught:
            asking = Tunnels(patience=0.05).ask(target, Question("GET", b""), apart=False, may_repeat=lambda: False)
            await asyncio.wait_for(asking, patient(10))
        assert caught.value.code == "node-unreachable"

    with socket.create_server(("127.0.0.1", 0)) as silent:  # nobody ever looks at its connections
        uvloop.run(scene(f"http://127.0.0.1:{silent.getsockname()[1]}"))


def test_a_kept_connection_whose_end_has_arrived_gets_no_request() -> None:
    """The server closes between two requests, and the event loop has not heard of it when the second one begins."""
    listener = socket.create_server(("127.0.0.1", 0))
    heads: list[bytes] = []

    def serve(connection: socket.socket | None = None) -> socket.socket:
        if connection is None:
            connection, _ = listener.accept()
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        heads.append(connection.recv(65536))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        return connection

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        target = Target(uuid4(), 1, "replica", 8000, f"http://127.0.0.1:{listener.getsockname()[1]}", visitor="v")
        tunnels = Tunnels()
        question = Question("POST", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")

        async def post() -> bytes:
            exchange = await tunnels.ask(target, question, apart=False, may_repeat=lambda: False)
            await exchange.answer.wait_for_end()
            exchange.close()
            return bytes(exchange.answer.early)

        served = loop.run_in_executor(None, serve)
        assert await post() == b"ok"
        served = loop.run_in_executor(None, serve, await served)
        assert await post() == b"ok"  # kept and used again
        connection = await served
        served = loop.run_in_executor(None, serve)
        connection.close()
        assert await post() == b"ok"
        (await served).close()
        tunnels.close()

    with listener:
        uvloop.run(scene())
    assert [head.startswith(b"POST / ") for head in heads] == [True] * 3


@pytest.mark.parametrize("proxies", [[], ["127.0.0.0/8"]])
def test_callers_who_share_a_token_share_no_connection_after_a_body(settings: Any, proxies: list[str]) -> None:
    settings.PROXIES = proxies

    async def scene() -> None:
        async with endpoint_stage() as here, aiohttp.ClientSession() as other:
            peers = []
            for client in (here.client, here.client, other):
                here.client = client
                assert (await here.ask("POST", data=b"x")).status == 200
                peers.append(here.models[1].requests[-1]._transport_peername)
            assert len(set(peers)) == (3 if proxies else 2)
            assert (peers[0] == peers[1]) is not bool(proxies)

    uvloop.run(scene())


def test_an_agent_that_stops_lets_requests_end_and_others_wait_until_it_is_back() -> None:
    async def scene() -> None:
        async with endpoint_stage() as here:
            answer = await asked(here)
            stop = asyncio.create_task(here.gateway.close_websockets(30.0))
            await asyncio.sleep(0)
            waits = asyncio.create_task(here.ask("POST", data=b"hello"))
            await here.until(lambda: here.endpoint.readings.filter(queued=1).exists(), steps=False)
            here.models[1].gate.set()
            assert await answer.read() == b"data: two\n\n"
            await stop
            assert not waits.done()  # the connection that has become free is another caller's
            here.gateway_starts_again()
            assert (await waits).status == 200

    uvloop.run(scene())


def test_an_app_proxy_that_stops_lets_requests_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_STOP_SECONDS", 0.01)

    async def whole(here: Stage) -> bytes:
        return await (await asked(here)).read()

    async def scene() -> None:
        async with endpoint_stage() as here:
            reads = asyncio.create_task(whole(here))
            while not here.models[1].requests:
                await asyncio.sleep(0.01)
            asyncio.get_running_loop().call_later(0.5, here.models[1].gate.set)
        assert await reads == b"data: two\n\n"

    uvloop.run(scene())


def test_a_request_that_is_held_for_an_endpoint_that_is_stopped_is_told_so() -> None:
    async def scene() -> None:
        async with endpoint_stage(0) as here:
            held = asyncio.create_task(here.ask())
            await here.until(lambda: Endpoint.objects.filter(desired=1).exists(), steps=False)
            await sync_to_async(set_wish)(here.endpoint, here.cast.alice, DesiredState.STOPPED)
            assert await error_code(await held) == (503, "endpoint-stopped")

    uvloop.run(scene())


@pytest.mark.ci
def test_a_request_that_queues_for_an_endpoint_that_is_stopped_is_told_so() -> None:
    async def scene() -> None:
        async with endpoint_stage(concurrency=1) as here:
            await asked(here)
            queued = asyncio.create_task(here.ask())
            await here.until(lambda: here.endpoint.readings.filter(queued=1).exists(), steps=False)
            await sync_to_async(set_wish)(here.endpoint, here.cast.alice, DesiredState.STOPPED)
            assert await error_code(await queued) == (503, "endpoint-stopped")

    uvloop.run(scene())


def test_a_lost_database_is_no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with endpoint_stage(0, minimum=1) as here:

            def away(*_: Any, **__: Any) -> None:
                raise InterfaceError("away")

            monkeypatch.setattr(service_module, "note_wake", away)
            assert await error_code(await here.ask()) == (503, "no-replica")
            await here.change(minimum=0)
            while (await error_code(await here.ask()))[1] != "cannot-wake":
                await asyncio.sleep(0.05)

    uvloop.run(scene())


def test_a_revoked_token_cuts_its_open_stream_and_no_other() -> None:
    async def scene() -> None:
        async with endpoint_stage() as here:
            _, other = await sync_to_async(create_token)(here.endpoint, here.cast.alice, "other")
            own = await asked(here)
            headers = {"Authorization": f"Bearer {other}"}
            while (foreign := await here.ask(path="/stream", headers=headers)).status != 200:
                await asyncio.sleep(0.05)
            await sync_to_async(revoke_token)(here.token, here.cast.alice)
            assert await broken_off(own)
            here.models[1].gate.set()
            assert not await broken_off(foreign)

    uvloop.run(scene())


def test_a_site_that_allows_no_public_endpoints_any_more_asks_for_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "SERVING_PUBLIC", True)

    async def scene() -> None:
        async with endpoint_stage(is_public=True) as here:
            no_token = {"Authorization": ""}
            assert (await here.ask(headers=no_token)).status == 200
            for own in ("Bearer of-the-server", f"Bearer {here.text}"):  # a token of the platform stays here
                assert (await here.ask(headers={"Authorization": own})).status == 200
                told = here.models[1].requests[-1].headers.get("Authorization")
                assert told == (None if here.text in own else own)
            stream = await asked(here)
            assert stream.status == 200
            monkeypatch.setattr(settings, "SERVING_PUBLIC", False)
            assert (await here.ask(headers=no_token)).status == 401
            assert (await here.ask(headers=COMMON | no_token)).status == 401
            assert await broken_off(stream)

    uvloop.run(scene())


def test_pages_can_read_refusals_of_the_common_address() -> None:
    async def scene() -> None:
        async with endpoint_stage(0, origins=["https://chat.example.org"]) as here:
            headers = COMMON | {"Origin": "https://chat.example.org"}
            answer = await here.ask("POST", "/v1/completions", data=b'{"model": "other"}', headers=headers)
            assert answer.status == 404
            assert answer.headers["Access-Control-Allow-Origin"] == "https://chat.example.org"

    uvloop.run(scene())


def test_an_endpoint_that_goes_while_a_body_comes_answers_in_words() -> None:
    async def scene() -> None:
        async with endpoint_stage(0) as here:
            sent, gone = asyncio.Event(), asyncio.Event()

            async def slowly() -> Any:
                yield b'{"model": "chat", '
                sent.set()
                await gone.wait()
                yield b'"x": 1}'

            asks = asyncio.create_task(here.ask("POST", "/v1/completions", data=slowly(), headers=COMMON))
            await sent.wait()
            await sync_to_async(set_wish)(here.endpoint, here.cast.alice, DesiredState.DELETED)
            while (await here.ask()).status == 503:
                await asyncio.sleep(0.05)
            gone.set()
            assert await error_code(await asks) == (503, "endpoint-stopped")

    uvloop.run(scene())


def test_neither_failed_dials_nor_callers_that_leave_are_answers() -> None:
    async def scene() -> None:
        async with endpoint_stage() as here:
            (await asked(here)).close()
            await here.until(lambda: here.endpoint.readings.filter(completions=1).exists(), steps=False)
            await here.cut(1)
            assert (await here.ask("POST", data=b"x")).status == 502
            await here.until(lambda: here.endpoint.readings.filter(requests=2).exists(), steps=False)
            reading = await sync_to_async(here.endpoint.readings.order_by("-at").first)()
            assert (reading.completions, reading.errors, sum(reading.histogram)) == (1, 0, 0)

    uvloop.run(scene())
