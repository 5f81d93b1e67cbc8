"""Nodes without a broker wait at the portal for something to do: what they hold there meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from django.db import connection, connections

from backendai.asgi import application
from backendai.base.wire.messages import JoinUp
from backendai.domain.cluster.joining import create_join_token, join_agent
from backendai.portal.agents import long_polls
from tests.controller.clocks import sync_of
from tests.factories import make_group

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]
POOL = 2


@pytest.fixture
def token() -> str:
    _, token = join_agent(JoinUp(token=create_join_token(make_group()), name="n-1", gateway_url=""))
    return token


@pytest.fixture
def short_lived(token: str) -> Iterator[None]:
    """Connections are given back at the end of a request, as on PostgreSQL."""
    with mock.patch.dict(connections.settings["default"], {"CONN_MAX_AGE": 0}):
        yield


@pytest.fixture
def pool(token: str) -> Iterator[None]:
    """A pool as the portal has it, but for its size."""
    if connection.vendor != "postgresql":
        pytest.skip("there is a pool on PostgreSQL only")
    options = connections.settings["default"]["OPTIONS"]
    connection.close()
    with mock.patch.dict(options, {"pool": {"min_size": 1, "max_size": POOL, "timeout": 1}}):
        yield
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]  # PostgreSQL's has it


async def ask(method: str, path: str, body: str = "", token: str = "") -> int:
    """Return the status of the answer."""
    headers = [(b"host", b"localhost"), (b"content-length", str(len(body)).encode())]
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
        "scheme": "http", "http_version": "1.1", "root_path": "", "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80), "headers": [*headers, (b"authorization", f"Node {token}".encode())],
    }  # fmt: skip
    sent: list[dict[str, Any]] = []
    messages = iter([{"type": "http.request", "body": body.encode(), "more_body": False}])

    async def receive() -> dict[str, Any]:
        if message := next(messages, None):
            return message
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await application(scope, receive, send)
    status: int = sent[0]["status"]
    return status


def poll(token: str, seconds: float) -> Any:
    return ask("POST", "/node/v1/sync", sync_of(wait=seconds).model_dump_json(), token)


def tokens(count: int) -> list[str]:
    group = make_group()
    joined = [JoinUp(token=create_join_token(group), name=f"m-{n}", gateway_url="") for n in range(count)]
    return [join_agent(one)[1] for one in joined]


def test_a_waiting_poll_holds_no_connection(token: str, short_lived: None) -> None:
    kind, held = type(connections["default"]), set[int]()
    connect, close = kind.connect, kind.close

    def opened(self: Any) -> None:
        connect(self)
        held.add(id(self))

    def closed(self: Any) -> None:
        close(self)
        held.discard(id(self))

    seen: list[int] = []

    async def wait() -> None:
        waiting = asyncio.ensure_future(poll(token, 2.0))
        while not waiting.done():
            await asyncio.sleep(0.1)
            seen.append(len(held))
        assert await waiting == 200

    with mock.patch.multiple(kind, connect=opened, close=closed):
        asyncio.run(wait())
    assert max(seen[:-1]) <= 1  # it has looked, in a thread of its own
    assert seen.count(0) > len(seen) / 2


def test_pages_are_served_while_more_nodes_wait_than_the_pool_has_connections(pool: None) -> None:
    waiting = tokens(3 * POOL)
    connection.close()

    async def crowd() -> tuple[int, float, list[int]]:
        polls = [asyncio.ensure_future(poll(token, 4.0)) for token in waiting]
        await asyncio.sleep(2.0)
        started_at = time.monotonic()
        status = await ask("GET", "/login/")
        return status, time.monotonic() - started_at, list(await asyncio.gather(*polls))

    status, seconds, answers = asyncio.run(crowd())
    assert (status, set(answers)) == (200, {200})
    assert seconds < 1.5


def test_an_agent_that_waits_anew_ends_the_poll_before(token: str) -> None:
    async def two() -> tuple[float, bool]:
        started_at = time.monotonic()
        first = asyncio.ensure_future(poll(token, 20.0))
        while not long_polls._newest:
            await asyncio.sleep(0.05)
        second = asyncio.ensure_future(poll(token, 3.0))
        assert await first == 200
        ended = time.monotonic() - started_at
        is_second_waiting = not second.done()
        assert await second == 200
        return ended, is_second_waiting

    with mock.patch.object(long_polls, "has_work", lambda agent_id: False):
        ended, is_second_waiting = asyncio.run(two())
    assert ended < 10 and is_second_waiting
    assert not long_polls._newest
