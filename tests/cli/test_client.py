"""How calls are sent: once, again, page after page, and never elsewhere."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from bai import AsyncClient, Client, Problem, Unreachable, api
from tests.cli.stub import stub_portal

SESSION = {"id": "1", "name": "train", "status": "PENDING", "created_at": "2026-05-04T12:00:00Z", "unheard": 1}
REFUSED = {"code": "slot-limit", "detail": "Too much.", "field": "resources.cpu", "data": {"limit": "4"}}


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that senders would have waited."""
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("bai.sdk.client.time.sleep", waited.append)
    monkeypatch.setattr("bai.sdk.async_client.asyncio.sleep", wait)
    return waited


def send(url: str, call: Any, sender: str) -> Any:
    """The same call by one of the two senders."""
    if sender == "waits":
        with Client(url, "secret") as portal:
            return portal.send(call)

    async def await_it() -> Any:
        async with AsyncClient(url, "secret") as portal:
            return await portal.send(call)

    return asyncio.run(await_it())


both = pytest.mark.parametrize("sender", ["waits", "awaits"])


@both
def test_a_call_is_signed_in_and_its_answer_is_a_noun(sender: str) -> None:
    with stub_portal((200, SESSION)) as stub:
        found = send(stub.url, api.session("a/b"), sender)
    (asked,) = stub.asked
    assert (asked.method, asked.path) == ("GET", "/api/v1/sessions/a%2Fb/")
    assert asked.headers["authorization"] == "Bearer secret" and asked.headers["user-agent"].startswith("bai/1.")
    assert (found.name, found.created_at, found.data["unheard"]) == ("train", datetime(2026, 5, 4, 12, tzinfo=UTC), 1)


@both
def test_reading_is_repeated_while_the_portal_is_away(sender: str, pauses: list[float]) -> None:
    with stub_portal((503, {}), (0, None), (502, {}), (200, SESSION)) as stub:
        assert send(stub.url, api.session("1"), sender).name == "train"
    assert len(stub.asked) == 4 and pauses[0] == 0 and all(0.3 < pause < 3 for pause in pauses[1:])


@both
def test_a_launch_is_repeated_under_one_key(sender: str) -> None:
    with stub_portal((0, None), (503, {}), (201, SESSION)) as stub:
        send(stub.url, api.launch(image="python"), sender)
    keys = {asked.headers["idempotency-key"] for asked in stub.asked}
    assert len(stub.asked) == 3 and len(keys) == 1 and len(keys.pop()) == 32


def test_each_launch_has_a_key_of_its_own() -> None:
    with stub_portal((201, SESSION)) as stub, Client(stub.url, "secret") as portal:
        portal.send(api.launch(image="python"))
        portal.send(api.launch(image="python"))
    assert stub.asked[0].headers["idempotency-key"] != stub.asked[1].headers["idempotency-key"]


def test_what_must_not_happen_twice_is_not_repeated() -> None:
    with stub_portal((0, None), (200, {})) as stub, pytest.raises(Unreachable):
        send(stub.url, api.ask_for_token(device_code="x"), "waits")
    assert len(stub.asked) == 1 and "authorization" not in stub.asked[0].headers


def test_a_rate_limit_says_how_long_to_wait(pauses: list[float]) -> None:
    with stub_portal((429, {}, {"Retry-After": "7"}), (429, {}, {"Retry-After": "3600"}), (200, {})) as stub:
        send(stub.url, api.ask_for_token(device_code="x"), "waits")
    assert pauses == [0, 7, 60]


def test_it_gives_up_after_five_attempts() -> None:
    with stub_portal((503, {"code": "database-busy", "detail": "Busy."})) as stub, pytest.raises(Problem) as caught:
        send(stub.url, api.me(), "waits")
    assert (len(stub.asked), caught.value.status, caught.value.code) == (5, 503, "database-busy")


def test_a_portal_that_is_not_there_is_unreachable() -> None:
    with pytest.raises(Unreachable, match=r"^http://127.0.0.1:9 does not answer"):
        send("http://127.0.0.1:9", api.launch(image="python"), "waits")


@both
def test_a_refusal_is_a_problem_with_its_code_field_and_values(sender: str) -> None:
    with stub_portal((400, REFUSED)) as stub, pytest.raises(Problem) as caught:
        send(stub.url, api.launch(image="python"), sender)
    problem = caught.value
    assert (problem.status, problem.code, problem.field) == (400, "slot-limit", "resources.cpu")
    assert (problem.detail, problem.data, len(stub.asked)) == ("Too much.", {"limit": "4"}, 1)


def test_pages_are_followed_at_the_portal_whatever_host_they_name() -> None:
    elsewhere = "https://evil.example.org/api/v1/sessions/?cursor=abc&page_size=100"
    pages = ({"results": [SESSION], "next": elsewhere}, {"results": [SESSION | {"id": "2"}], "next": None})
    with stub_portal(*((200, page) for page in pages)) as stub, Client(stub.url, "secret") as portal:
        assert [one.id for one in portal.each(api.sessions(live=True, status=["RUNNING", "PENDING"]))] == ["1", "2"]
    assert [asked.path for asked in stub.asked] == [
        "/api/v1/sessions/?page_size=100&live=true&status=RUNNING&status=PENDING",
        "/api/v1/sessions/?cursor=abc&page_size=100",
    ]


def test_pages_are_awaited() -> None:
    async def read(url: str) -> list[str]:
        async with AsyncClient(url, "secret") as portal:
            return [one.name async for one in portal.each(api.folders())]

    pages = ({"results": [{"id": "1", "name": "a"}], "next": "?cursor=x"}, {"results": [{"id": "2", "name": "b"}]})
    with stub_portal(*((200, page) for page in pages)) as stub:
        assert asyncio.run(read(stub.url)) == ["a", "b"]


def test_an_answer_that_leads_elsewhere_is_not_followed() -> None:
    with stub_portal((302, None, {"Location": "https://evil.example.org/"})) as stub, pytest.raises(Problem) as caught:
        send(stub.url, api.me(), "waits")
    assert (caught.value.status, len(stub.asked)) == (302, 1) and "evil.example.org" in caught.value.detail


def test_what_does_not_answer_as_a_portal_is_a_problem() -> None:
    with stub_portal((200, ["a page"])) as stub, pytest.raises(Problem) as caught:
        send(stub.url, api.session("1"), "waits")
    assert caught.value.code == "not-a-portal"


def test_an_address_without_a_scheme_is_refused() -> None:
    with pytest.raises(ValueError, match="https://"):
        Client("portal.example.org")
