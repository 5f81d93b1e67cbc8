"""Requests to endpoints, through the app proxy and a real gateway, to servers that behave as a test says."""

from __future__ import annotations

import asyncio
import json
import stat
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import uvloop
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import DatabaseError
from django.utils import timezone

from backendai.domain.accounts.sign_in.revocation import set_active
from backendai.domain.serving.models import DesiredState, Endpoint, Replica, State
from backendai.domain.serving.services.endpoints import change_endpoint, set_wish
from backendai.domain.serving.services.tokens import create_token, revoke_token
from backendai.gates.appproxy.endpoints import service as service_module
from backendai.gates.appproxy.endpoints import table_cache as keeper_module
from tests.appproxy.endpoint_stage import endpoint_stage
from tests.patience import patient
from tests.serving.world import a_revision, make_endpoint

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def own_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.DATA_DIR = tmp_path


def test_requests_are_spread_over_the_replicas_and_the_token_stays_here() -> None:
    async def scene() -> None:
        async with endpoint_stage(2) as here:
            answers = [await (await here.ask("POST", data=b"{}")).text() for _ in range(20)]
            assert set(Counter(answers)) == {"1", "2"}
            for model in here.models.values():
                assert all("Authorization" not in request.headers for request in model.requests)
                assert set(model.bodies) == {b"{}"}

    uvloop.run(scene())


def test_without_a_token_with_a_foreign_or_a_revoked_one_nobody_gets_in() -> None:
    async def scene() -> None:
        async with endpoint_stage() as here:
            for value in ("", "Bearer wrong", f"Basic {here.text}"):
                answer = await here.ask(headers={"Authorization": value})
                assert answer.status == 401
                assert (await answer.json())["error"]["code"] == "token-refused"
            plain = await here.ask(path="/generate", headers={"Authorization": ""})
            assert (await plain.json())["code"] == "token-refused"
            await sync_to_async(revoke_token)(here.token, here.cast.alice)
            while (await here.ask()).status != 401:
                await asyncio.sleep(0.05)
            assert not any(request.path == "/generate" for request in here.models[1].requests)

    uvloop.run(scene())


def test_a_rate_is_kept_for_each_token() -> None:
    async def scene() -> None:
        async with endpoint_stage() as here:
            await sync_to_async(lambda: type(here.token).objects.update(per_minute=12))()
            await here.change()
            seen = []
            while 429 not in seen:
                answer = await here.ask()
                seen.append(answer.status)
                await asyncio.sleep(0.01)
            assert 1 <= int(answer.headers["Retry-After"]) <= 60

    uvloop.run(scene())


def test_a_full_replica_makes_wait_and_a_full_queue_refuses() -> None:
    async def scene() -> None:
        async with endpoint_stage(concurrency=1) as here:
            await here.change(queue=1)
            model = here.models[1]
            model.gate.clear()
            asked = [asyncio.create_task(here.ask())]
            while not model.requests:
                await asyncio.sleep(0.01)
            refused = []
            while not refused:  # one waits; once the proxy knows of the short queue, another one is refused
                task = asyncio.create_task(here.ask())
                done, _ = await asyncio.wait([task], timeout=0.2)
                refused += [one.result() for one in done]
                asked += [task] if not done else []
            assert refused[0].status == 503
            assert (await refused[0].json())["error"]["code"] == "queue-full"
            assert "Retry-After" in refused[0].headers
            model.gate.set()
            assert {(await one).status for one in asked} == {200}

    uvloop.run(scene())


def test_a_broken_replica_costs_no_request_that_may_be_repeated() -> None:
    async def scene() -> None:
        async with endpoint_stage(2) as here:
            await here.cut(1)
            for _ in range(8):  # connections that were open end with the old address
                answer = await here.ask("POST", data=b"x" * 1000)
                assert (answer.status, await answer.text()) in [(200, "2"), (200, "1")]
            await here.cut(2)

    uvloop.run(scene())


def test_a_request_that_was_sent_is_not_sent_twice() -> None:
    async def scene() -> None:
        async with endpoint_stage(2) as here:
            for model in here.models.values():
                model.breaks = True
            answer = await here.ask("POST", data=b"charge the card")
            assert answer.status == 502
            assert sum(len(model.requests) for model in here.models.values()) == 1
            answer = await here.ask("GET")  # may be repeated, once, and never on the same replica
            assert answer.status == 502
            assert sum(len(model.requests) for model in here.models.values()) == 3

    uvloop.run(scene())


def test_streams_pass_piece_by_piece_and_end_when_the_caller_leaves() -> None:
    async def scene() -> None:
        async with endpoint_stage() as here:
            model = here.models[1]
            model.gate.clear()
            answer = await here.ask(path="/stream")
            assert await answer.content.readany() == b"data: one\n\n"
            answer.close()
            await asyncio.wait_for(model.left.wait(), patient(20))

    uvloop.run(scene())


def test_a_body_over_the_limit_is_refused() -> None:
    async def scene() -> None:
        async with endpoint_stage() as here:
            await here.change(max_body=1000)
            while (answer := await here.ask("POST", data=b"x" * 2000)).status != 413:
                await asyncio.sleep(0.05)
            assert (await answer.json())["error"]["code"] == "body-too-large"

            async def endless() -> Any:
                for _ in range(100):
                    yield b"x" * 100

            assert (await here.ask("POST", data=endless())).status == 413

    uvloop.run(scene())


def test_a_sleeping_endpoint_holds_the_request_and_wakes() -> None:
    async def scene() -> None:
        async with endpoint_stage(0) as here:
            asked = [asyncio.create_task(here.ask("POST", data=b"hello")) for _ in range(20)]
            await here.until(lambda: Endpoint.objects.filter(desired=1).exists(), steps=False)
            await here.until(lambda: all(one.done() for one in asked))
            assert {one.result().status for one in asked} == {200}
            assert here.models[1].bodies == [b"hello"] * 20

    uvloop.run(scene())


def test_who_holds_for_too_long_is_told_why() -> None:
    async def scene() -> None:
        async with endpoint_stage(0) as here:
            answer = await here.ask(headers={"X-Scale-Up-Timeout": "1"})
            assert answer.status == 503
            assert (await answer.json())["error"]["code"] == "no-replica"
            assert "Retry-After" in answer.headers

    uvloop.run(scene())


@pytest.mark.ci
def test_a_drain_loses_no_open_request() -> None:
    async def scene() -> None:
        async with endpoint_stage(2) as here:
            for model in here.models.values():
                model.gate.clear()
            asked = [asyncio.create_task(here.ask("POST", data=b"slow")) for _ in range(4)]
            while sum(len(model.requests) for model in here.models.values()) < 4:
                await asyncio.sleep(0.01)
            await sync_to_async(change_endpoint)(here.endpoint, here.cast.alice, minimum=1, maximum=1)
            await here.until(lambda: Replica.objects.filter(state=State.DRAINING).exists())
            for _ in range(60):  # however often the passes look, a replica with open requests stays
                await here.step()
                await asyncio.sleep(0.05)
            assert await sync_to_async(Replica.objects.live().count)() == 2
            for model in here.models.values():
                model.gate.set()
            assert {(await one).status for one in asked} == {200}
            await here.until(lambda: Replica.objects.live().count() == 1)

    uvloop.run(scene())


def test_a_stopped_endpoint_says_so() -> None:
    async def scene() -> None:
        async with endpoint_stage() as here:
            await sync_to_async(set_wish)(here.endpoint, here.cast.alice, "stopped")
            while (answer := await here.ask()).status != 503:
                await asyncio.sleep(0.05)
            assert (await answer.json())["error"]["code"] == "endpoint-stopped"

    uvloop.run(scene())


def test_without_a_database_requests_go_on_also_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with endpoint_stage(2) as here:
            book = settings.DATA_DIR / f"endpoints-{here.port}.json"
            kept = json.loads(book.read_text())
            assert stat.S_IMODE(book.stat().st_mode) == 0o600
            assert here.text not in book.read_text()
            assert len(kept["book"]["endpoints"][0]["replicas"]) == 2

            def away() -> Any:
                raise DatabaseError("the database is away")

            monkeypatch.setattr(keeper_module, "read_sign", away)
            monkeypatch.setattr(keeper_module, "read_table", lambda now: away())
            again = keeper_module.TableCache(book, lambda table: None)
            await again.open()
            assert again.is_trusted
            assert len(again.table.endpoints[here.endpoint.label].replicas) == 2
            await again.close()
            assert (await here.ask()).status == 200
            monkeypatch.setattr(settings, "SERVING_TRUST", -1)
            answer = await here.ask()
            assert (answer.status, (await answer.json())["error"]["code"]) == (503, "book-too-old")

    uvloop.run(scene())


def test_a_token_opens_from_the_moment_in_which_it_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with endpoint_stage() as here:
            monkeypatch.setattr(service_module, "LOOK_SECONDS", 600.0)
            looks, read = list[float](), keeper_module.read_sign
            monkeypatch.setattr(keeper_module, "read_sign", lambda: looks.append(0) or read())
            await here.until(lambda: looks, steps=False)  # the pause after this one is the long one
            for host in (here.host, "models.apps.localhost"):
                _, text = await sync_to_async(create_token)(here.endpoint, here.cast.alice, "new")
                answer = await here.ask(headers={"Host": host, "Authorization": f"Bearer {text}"})
                assert answer.status == 200, host

    uvloop.run(scene())


def test_a_look_that_has_begun_is_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have read before the token was there."""

    async def scene() -> None:
        keeper = keeper_module.TableCache(tmp_path / "book.json", lambda table: None)
        begun, go_on, looks = asyncio.Event(), asyncio.Event(), list[int]()

        async def slow(question: Any) -> Any:
            looks.append(1)
            begun.set()
            await go_on.wait()
            raise keeper_module.DatabaseUnavailable

        monkeypatch.setattr(keeper, "ask", slow)
        first = asyncio.create_task(keeper.look_anew())
        await asyncio.wait_for(begun.wait(), patient(10))
        later = [asyncio.create_task(keeper.look_anew()) for _ in range(5)]
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(first, *later)
        assert len(looks) == 2

    uvloop.run(scene())


def test_a_database_that_stands_still_keeps_no_app_proxy_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with endpoint_stage() as here:
            book, goes_on = settings.DATA_DIR / f"endpoints-{here.port}.json", threading.Event()
            monkeypatch.setattr(keeper_module, "OPEN_SECONDS", 0.05)
            monkeypatch.setattr(keeper_module, "PATIENCE_SECONDS", 600.0)
            monkeypatch.setattr(keeper_module, "read_table", lambda now: goes_on.wait())
            again = keeper_module.TableCache(book, lambda table: None)
            await asyncio.wait_for(again.open(), patient(30))
            assert again.table.endpoints[here.endpoint.label].replicas
            goes_on.set()
            await again.close()

    uvloop.run(scene())


def test_what_is_counted_as_open_is_what_is_open() -> None:
    async def scene() -> None:
        async with endpoint_stage() as here:
            model = here.models[1]
            model.gate.clear()
            asked = [asyncio.create_task(here.ask()) for _ in range(5)]
            while len(model.requests) < 5:
                await asyncio.sleep(0.01)
            sights = here.models and Replica.objects.get
            await here.until(lambda: sights().sights.filter(open=5).exists(), steps=False)
            for one in asked[:3]:
                one.cancel()
            await here.until(lambda: sights().sights.filter(open=2).exists(), steps=False)
            model.gate.set()
            assert {(await one).status for one in asked[3:]} == {200}
            await here.until(lambda: sights().sights.filter(open=0).exists(), steps=False)
            reading = await sync_to_async(here.endpoint.readings.order_by("-at").first)()
            assert (reading.open, reading.queued, reading.held) == (0, 0, 0)
            assert reading.busy_seconds > 0

    uvloop.run(scene())


COMMON = {"Host": "models.apps.localhost"}


def test_the_common_address_lists_models_and_chooses_by_the_model() -> None:
    async def scene() -> None:
        async with endpoint_stage(2) as here:
            listed = await (await here.ask(path="/v1/models", headers=COMMON)).json()
            assert [one["id"] for one in listed["data"]] == ["chat"]
            assert (await (await here.ask(path="/v1/models/chat", headers=COMMON)).json())["object"] == "model"
            for name in ("chat", here.endpoint.label):
                body = json.dumps({"model": name, "messages": []}).encode()
                answer = await here.ask("POST", "/v1/chat/completions", data=body, headers=COMMON)
                assert answer.status == 200
                served = here.models[int(await answer.text())]
                assert served.bodies[-1] == body
                assert "Authorization" not in served.requests[-1].headers

    uvloop.run(scene())


@pytest.mark.parametrize("theirs", ["chat", "model-x"])
def test_a_public_endpoint_of_others_gets_no_request_for_ones_own(settings: Any, theirs: str) -> None:
    settings.SERVING_PUBLIC = True

    async def scene() -> None:
        async with endpoint_stage(model_name="model-x") as here:
            trap = a_revision(port=here.model_port, model_name=theirs)
            await sync_to_async(make_endpoint)(here.cast.bob, "trap", revision=trap, is_public=True, minimum=0)
            nobody = COMMON | {"Authorization": ""}
            while theirs not in await (await here.ask(path="/v1/models", headers=nobody)).text():
                await asyncio.sleep(0.05)
            for model in ("chat", "model-x", here.endpoint.label):
                answer = await here.ask("POST", "/v1/completions", json={"model": model}, headers=COMMON)
                assert (answer.status, await answer.text()) == (200, "1")

    uvloop.run(scene())


def test_nobody_gets_in_or_wakes_it_when_its_owner_is_deactivated() -> None:
    async def scene() -> None:
        async with endpoint_stage(0, minimum=0) as here:
            asked = await here.ask(path="/v1/models", headers=COMMON)
            assert asked.status == 200
            alice = here.cast.alice
            await sync_to_async(set_active)(here.cast.dana.pk, alice, False, now=timezone.now())
            while (await here.ask(path="/v1/models", headers=COMMON)).status != 401:
                await asyncio.sleep(0.05)
            answer = await here.ask("POST", data=b"{}")
            assert (answer.status, (await answer.json())["error"]["code"]) == (503, "endpoint-stopped")
            assert (await sync_to_async(Endpoint.objects.get)()).desired == 0

    uvloop.run(scene())


def test_a_body_that_waits_for_an_interim_answer_is_asked_for() -> None:
    async def scene() -> None:
        async with endpoint_stage() as here, asyncio.timeout(patient(60)):
            for headers in ({}, COMMON):
                body = b'{"model": "chat"}'
                answer = await here.ask("POST", "/v1/completions", data=body, headers=headers, expect100=True)
                assert (answer.status, here.models[1].bodies[-1]) == (200, body)

    uvloop.run(scene())


REFUSED: list[tuple[str, str, bytes | None, int, str]] = [
    ("POST", "/v1/completions", b'{"model": "other"}', 404, "model-not-found"),
    ("POST", "/v1/completions", b'{"model": 7}', 400, "model-missing"),
    ("POST", "/v1/completions", b"[]", 400, "model-missing"),
    ("POST", "/v1/completions", b"{", 400, "invalid-json"),
    ("POST", "/v1/completions", b"[" * 200_000, 400, "invalid-json"),
    ("POST", "/v1/completions", b'{"model": "chat", "x": "%s"}' % (b"x" * 2**20), 413, "body-too-large"),
    ("POST", "/v1/completions", b'{"model": "%s"}' % (b"m" * 10_000), 404, "model-not-found"),
    ("GET", "/v1/models/other", None, 404, "model-not-found"),
    ("DELETE", "/v1/models/chat", None, 404, "unknown-address"),
]


def test_the_common_address_refuses_in_the_form_of_openai() -> None:
    async def scene() -> None:
        async with endpoint_stage(0, minimum=0, maximum=1) as here:
            for method, path, body, status, code in REFUSED:
                answer = await here.ask(method, path, data=body, headers=COMMON)
                said = await answer.text()
                assert (answer.status, json.loads(said)["error"]["code"]) == (status, code)
                assert len(said) < 1000

    uvloop.run(scene())


def test_a_token_for_all_endpoints_opens_those_of_its_owner_only() -> None:
    async def scene() -> None:
        async with endpoint_stage() as here:

            def more() -> tuple[str, str]:
                second = make_endpoint(here.cast.alice, "second", minimum=0)
                foreign = make_endpoint(here.cast.bob, "foreign", minimum=0)
                _, text = create_token(second, here.cast.alice, "all", opens_all=True)
                _, own = create_token(foreign, here.cast.bob, "his")
                return text, own

            everything, his = await sync_to_async(more)()
            seen: dict[str, list[str]] = {}
            while len(seen.get(everything, [])) < 2 or not seen.get(his):
                for text in (here.text, everything, his):
                    answer = await here.ask(headers=COMMON | {"Authorization": f"Bearer {text}"})
                    seen[text] = [one["id"] for one in (await answer.json()).get("data", [])]
                await asyncio.sleep(0.05)
            assert seen == {here.text: ["chat"], everything: ["chat", "second"], his: ["foreign"]}
            for value in ("", "Bearer bsk-wrong"):
                answer = await here.ask(headers=COMMON | {"Authorization": value})
                assert (await answer.json())["error"]["code"] == "token-refused"

    uvloop.run(scene())


def test_pages_of_listed_origins_alone_get_through() -> None:
    async def scene() -> None:
        good, bad = "https://chat.example.org", "https://evil.example.org"
        asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        async with endpoint_stage(origins=[good]) as here:
            for host in ({}, COMMON):
                first = await here.ask("OPTIONS", headers={"Origin": good, "Authorization": "", **asks, **host})
                assert (first.status, first.headers["Access-Control-Allow-Origin"]) == (204, good)
                assert first.headers["Access-Control-Allow-Headers"] == "authorization"
                refused = await here.ask("OPTIONS", headers={"Origin": bad, **asks, **host})
                assert refused.status == 403
                assert "Access-Control-Allow-Origin" not in refused.headers
            answer = await here.ask("POST", data=b"{}", headers={"Origin": good})
            assert (answer.status, answer.headers.getall("Access-Control-Allow-Origin")) == (200, [good])
            asked = len(here.models[1].requests)
            assert (await here.ask("POST", data=b"{}", headers={"Origin": bad})).status == 403
            assert len(here.models[1].requests) == asked
            own = await here.ask(headers={"Origin": f"http://{here.host}"})
            assert (own.status, own.headers.get("Access-Control-Allow-Origin")) == (200, None)
            wrong = await here.ask(headers={"Origin": good, "Authorization": ""})
            assert (wrong.status, wrong.headers["Access-Control-Allow-Origin"]) == (401, good)

    uvloop.run(scene())


def test_requests_with_the_same_affinity_keep_to_one_replica() -> None:
    async def scene() -> None:
        async with endpoint_stage(2, affinity="X-Conversation") as here:
            by_key = {}
            for key in map(str, range(12)):
                texts = {await (await here.ask(headers={"X-Conversation": key})).text() for _ in range(4)}
                assert len(texts) == 1
                by_key[key] = texts.pop()
            assert set(by_key.values()) == {"1", "2"}

    uvloop.run(scene())


def test_the_replicas_of_a_deleted_endpoint_end_with_their_last_request() -> None:
    async def scene() -> None:
        async with endpoint_stage() as here:
            here.models[1].gate.clear()
            asked = asyncio.create_task(here.ask())
            while not here.models[1].requests:
                await asyncio.sleep(0.01)
            await sync_to_async(set_wish)(here.endpoint, here.cast.alice, DesiredState.DELETED)
            await here.until(lambda: Replica.objects.get().state == State.DRAINING)
            here.models[1].gate.set()
            assert (await asked).status == 200
            await here.until(lambda: Replica.objects.get().state == State.ENDED)

    uvloop.run(scene())
