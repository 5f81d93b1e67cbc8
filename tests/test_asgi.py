"""Pages under the ASGI server: threads live on, and what a request borrowed goes back at its end."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock
from uuid import UUID

import pytest
from django.core.signals import request_finished, request_started
from django.db import connection, connections
from django.http import HttpResponse

from backendai.asgi import WorkerThreads, application, closing
from backendai.ops.buffered_responses import BufferedResponses
from backendai.ops.kept_objects import set_aside_what_stays


@pytest.fixture(autouse=True)
def fresh_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread with a connection to the database from a test before."""
    monkeypatch.setattr(WorkerThreads, "_idle", [])


async def get(path: str, *headers: tuple[bytes, bytes]) -> tuple[int, bytes]:
    start, *parts = await ask(application, path, *headers)
    return start["status"], b"".join(message.get("body", b"") for message in parts)


async def ask(served: Any, path: str, *headers: tuple[bytes, bytes]) -> list[dict[str, Any]]:
    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"", "scheme": "http",
        "http_version": "1.1", "root_path": "", "headers": [(b"host", b"localhost"), *headers],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    sent: list[dict[str, Any]] = []
    body_is_given = False

    async def receive() -> dict[str, Any]:
        nonlocal body_is_given
        if body_is_given:
            await asyncio.sleep(60)
        body_is_given = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await served(scope, receive, send)
    return sent


class Answer:
    """A WSGI application that answers in these parts."""

    def __init__(self, parts: list[bytes], *headers: tuple[str, str], fault: bool = False) -> None:
        self.parts, self.headers, self.fault = parts, headers, fault
        self.is_closed = False

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", list(self.headers))
        try:
            yield from self.parts
            if self.fault:
                raise ValueError("broken off")
        finally:
            self.is_closed = True

    def sent(self) -> list[dict[str, Any]]:
        return asyncio.run(ask(BufferedResponses(self), "/"))


@pytest.mark.parametrize("path", ["/healthz", "/static/absent.css"])
def test_it_ends_every_request_so_that_its_database_connection_goes_back(path: str) -> None:
    ended: list[str] = []

    def note(**kwargs: Any) -> None:
        ended.append(threading.current_thread().name)

    request_finished.connect(note)
    try:
        asyncio.run(get(path))
    finally:
        request_finished.disconnect(note)
    assert len(ended) == 1


@pytest.mark.parametrize("path", ["/healthz", f"/api/v1/sessions/{UUID(int=1)}/runs/"])
def test_it_serves_one_request_after_the_other_on_the_same_thread(path: str) -> None:
    threads: list[str] = []

    def note(**kwargs: Any) -> None:
        threads.append(threading.current_thread().name)  # numbers of threads are used again, names are not

    async def two() -> None:
        await get(path)
        await get(path)

    request_finished.connect(note)
    try:
        asyncio.run(two())
    finally:
        request_finished.disconnect(note)
    assert len(threads) == 2 and threads[0] == threads[1]


def test_it_takes_no_header_that_is_spelt_with_an_underscore_for_one_that_a_proxy_sets() -> None:
    seen: list[dict[str, Any]] = []

    def note(environ: dict[str, Any], **kwargs: Any) -> None:
        seen.append(environ)

    proper, spoofed = (b"x-forwarded-proto", b"http"), (b"x_forwarded_proto", b"https")
    request_started.connect(note)
    try:
        asyncio.run(get("/healthz", proper, spoofed))
        asyncio.run(get("/healthz", spoofed))
    finally:
        request_started.disconnect(note)
    assert [environ.get("HTTP_X_FORWARDED_PROTO") for environ in seen] == ["http", None]
    assert seen[0]["HTTP_HOST"] == "localhost"


def test_an_answer_that_is_short_leaves_as_a_whole() -> None:
    answer = Answer([b"one ", b"two"], ("Content-Length", "7"), ("X-Of", "it"))
    start, body = answer.sent()
    assert start == {
        "type": "http.response.start",
        "status": 200,
        "headers": [(b"content-length", b"7"), (b"x-of", b"it")],
    }
    assert body == {"type": "http.response.body", "body": b"one two"}
    assert answer.is_closed


@pytest.mark.parametrize("length", [None, 3 * 2**20])
def test_one_that_is_long_or_does_not_know_leaves_part_by_part(length: int | None) -> None:
    headers = [] if length is None else [("Content-Length", str(length))]
    start, *parts = Answer([bytes(2**20)] * 3, *headers).sent()
    assert start["status"] == 200
    assert [len(part.get("body", b"")) for part in parts] == [2**20] * 3 + [0]
    assert not parts[-1].get("more_body")


def test_one_without_a_body_has_its_headers_and_its_end() -> None:
    start, end = Answer([], ("Content-Length", "0")).sent()
    assert (start["status"], end.get("body", b""), end.get("more_body", False)) == (200, b"", False)


def test_of_one_that_breaks_off_nothing_leaves() -> None:
    answer = Answer([b"one "], ("Content-Length", "7"), fault=True)
    with pytest.raises(ValueError, match="broken off"):
        answer.sent()
    assert answer.is_closed


@pytest.fixture
def others() -> Iterator[None]:
    """Nobody else hears of collections, which are as frequent as before, and nothing stays set aside."""
    heard, thresholds = list(gc.callbacks), gc.get_threshold()
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = heard
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.usefixtures("others")
def test_collections_pass_over_what_the_process_keeps_until_its_end() -> None:
    set_aside_what_stays()
    assert gc.get_freeze_count() > 100_000


@pytest.mark.usefixtures("others")
def test_a_page_is_made_without_a_look_at_everything() -> None:
    gc.set_threshold(700, 10, 10)
    set_aside_what_stays()
    looked: list[int] = []
    gc.callbacks.append(lambda phase, collection: looked.append(collection["generation"]))
    kept = [[] for _ in range(100_000)]
    assert len(kept) == 100_000
    assert 0 < len(looked) <= 2 * 10, "both ends of ten looks"
    assert 2 not in looked, "a look at everything"


@pytest.mark.usefixtures("others")
def test_they_pass_over_what_the_first_pages_have_loaded_too() -> None:
    def is_looked_at(wanted: object) -> bool:
        return any(one is wanted for one in gc.get_objects())

    set_aside_what_stays()
    early: list[object] = [[]]
    gc.collect(0)
    gc.collect()
    assert is_looked_at(early), "a page that was just made may have left it"
    gc.collect()
    assert not is_looked_at(early)
    late: list[object] = [[]]
    gc.collect()
    assert is_looked_at(late), "not after each: what is of a request under way must not stay for ever"
    gc.collect()
    assert not is_looked_at(late)


@pytest.mark.django_db(transaction=True)
def test_a_long_answer_holds_no_database_connection_while_it_is_sent() -> None:
    opened: list[Any] = []
    still_open: list[bool] = []

    def page(environ: dict[str, Any], start_response: Any) -> HttpResponse:
        connection.close()  # one of an earlier test would keep the age that it was opened with
        connection.ensure_connection()
        opened.append(connections["default"])
        start_response("200 OK", [("Content-Length", str(2**20))])
        return HttpResponse(bytes(2**20))

    async def read_slowly() -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            still_open.append(opened[0].connection is not None)

        scope = {
            "type": "http",
            "method": "GET",
            "path": "/",
            "query_string": b"",
            "headers": [],
            "http_version": "1.1",
        }
        await BufferedResponses(closing(page))(scope, receive, send)

    with mock.patch.dict(connections.settings["default"], {"CONN_MAX_AGE": 0}):  # as with PostgreSQL's pool
        asyncio.run(read_slowly())
    assert still_open and not any(still_open)
