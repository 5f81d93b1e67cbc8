"""Pages under the ASGI server: threads live on, and what a request borrowed goes back at its end."""

from __future__ import annotations

import asyncio
import gc
import gzip
import inspect
import os
import re
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

import pytest
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import connection, connections
from django.http import FileResponse, HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import URLResolver, get_resolver
from django.utils.module_loading import import_string
from prometheus_client import CollectorRegistry

from backendai import asgi
from backendai.asgi import Threads, application
from backendai.portal.http.buffered_responses import BufferedResponses
from backendai.portal.http.garbage_collection import set_aside_what_stays
from backendai.portal.http.metrics.requests import collect_requests
from backendai.portal.http.routes import serving_at

MOST_THREADS = 3


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Threads]:
    """No thread with a connection to the database from a test before."""
    threads = Threads(MOST_THREADS)
    monkeypatch.setattr(asgi, "threads", threads)
    yield threads
    threads.shutdown()


async def get(path: str, *headers: tuple[bytes, bytes]) -> tuple[int, bytes]:
    start, *parts = await ask(application, path, *headers)
    return start["status"], b"".join(message.get("body", b"") for message in parts)


async def ask(served: Any, path: str, *headers: tuple[bytes, bytes], body: bytes = b"") -> list[dict[str, Any]]:
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
        return {"type": "http.request", "body": body, "more_body": False}

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
def test_it_serves_many_requests_on_few_threads(path: str) -> None:
    threads: list[str] = []

    def note(**kwargs: Any) -> None:
        threads.append(threading.current_thread().name)  # numbers of threads are used again, names are not

    async def many() -> None:
        for _ in range(3 * MOST_THREADS):
            await get(path)

    request_finished.connect(note)
    try:
        asyncio.run(many())
    finally:
        request_finished.disconnect(note)
    assert len(threads) == 3 * MOST_THREADS and len(set(threads)) <= MOST_THREADS


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
    assert body == {"type": "http.response.body", "body": b"one two", "more_body": False}
    assert answer.is_closed


@pytest.mark.parametrize("length", [None, 3 * 2**18])
def test_one_that_is_long_or_does_not_know_leaves_part_by_part(length: int | None) -> None:
    headers = [] if length is None else [("Content-Length", str(length))]
    start, *parts = Answer([bytes(2**16)] * 12, *headers).sent()
    assert start["status"] == 200
    assert [len(part.get("body", b"")) for part in parts] == [2**18] * 3 + [0]
    assert [part.get("more_body", False) for part in parts] == [True] * 3 + [False]


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


class Readers:
    """Browsers that take the head of an answer, and nothing of its body until they are let go."""

    def __init__(self) -> None:
        self.heads, self.may_read = 0, asyncio.Event()

    async def open(self, served: Any, path: str = "/") -> int:
        """Return how many bytes the body had."""
        size = 0

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            nonlocal size
            size += len(message.get("body", b""))
            if message["type"] == "http.response.start":
                self.heads += 1
            else:
                await self.may_read.wait()

        scope = {
            "type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [], "http_version": "1.1",
        }  # fmt: skip
        await served(scope, receive, send)
        return size


def test_it_counts_requests_by_route_and_status(settings: Any) -> None:
    asked = [
        ("/healthz", "/healthz", "2xx"),
        ("/static/absent.css", "static", "4xx"),
        ("/absent", "other", "4xx"),
        (f"/api/v1/sessions/{UUID(int=1)}/", "/api/v1/sessions", "4xx"),
    ]
    registry = CollectorRegistry()
    collect_requests(registry)

    def count(route: str, status: str) -> float:
        labels = {"method": "GET", "route": route, "status": status}
        return registry.get_sample_value("backendai_http_requests_total", labels) or 0

    before = [count(route, status) for _, route, status in asked]
    for path, _, _ in asked:
        asyncio.run(get(path))
    assert [count(route, status) for _, route, status in asked] == [number + 1 for number in before]
    assert registry.get_sample_value("backendai_http_request_seconds_count", {"route": "/healthz"})


def test_the_processes_of_one_web_server_count_together(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from backendai.portal.http.metrics import sharing\n"
        "sharing.parent_process = lambda: 1\n"
        "sharing.share_counts(Path(sys.argv[1]))\n"
        "from backendai.portal.http.metrics.requests import collect_requests, counting\n"
        "from prometheus_client import CollectorRegistry\n"
        "with counting('GET', '/sessions', None): pass\n"
        "collect_requests(registry := CollectorRegistry())\n"
        "labels = {'method': 'GET', 'route': '/sessions', 'status': '4xx'}\n"
        "print(registry.get_sample_value('backendai_http_requests_total', labels))\n"
    )
    ended = tmp_path / "metrics" / "of-a-server-that-has-ended"
    ended.mkdir(parents=True)
    os.utime(ended, (1, 1))
    command = [sys.executable, "-c", code, tmp_path]
    told = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert told == ["1.0\n", "2.0\n"]
    assert not ended.exists()


@pytest.mark.django_db(transaction=True)
def test_readers_hold_neither_a_thread_nor_a_database_connection(threads: Threads) -> None:
    opened: list[Any] = []

    def page(environ: dict[str, Any], start_response: Any) -> HttpResponse:
        connection.close()  # one of an earlier test would keep the age that it was opened with
        connection.ensure_connection()
        opened.append(connections["default"])
        start_response("200 OK", [])
        return HttpResponse(bytes(2**20))

    async def read_slowly() -> None:
        readers, served = Readers(), BufferedResponses(page)
        async with ThreadSensitiveContext(executor=threads):
            pending = [asyncio.create_task(readers.open(served)) for _ in range(5 * MOST_THREADS)]
            while readers.heads < len(pending):
                await asyncio.sleep(0)
            assert all(one.connection is None for one in opened)
            assert await asyncio.wait_for(asyncio.shield(sync_to_async(lambda: 5)()), 60) == 5
            readers.may_read.set()
            assert await asyncio.gather(*pending) == [2**20] * len(pending)

    with mock.patch.dict(connections.settings["default"], {"CONN_MAX_AGE": 0}):  # as with PostgreSQL's pool
        asyncio.run(read_slowly())
    assert len(opened) == 5 * MOST_THREADS


def test_a_file_leaves_in_pieces_and_is_closed_at_its_end(tmp_path: Path) -> None:
    (tmp_path / "asset").write_bytes(bytes(3 * 2**18 + 5))
    given: list[FileResponse] = []

    def asset(request: HttpRequest) -> FileResponse:
        given.append(FileResponse((tmp_path / "asset").open("rb")))
        return given[-1]

    handler = WSGIHandler()
    handler._middleware_chain = asset  # type: ignore[attr-defined]
    _, *parts = asyncio.run(ask(BufferedResponses(handler), "/"))
    assert [len(part["body"]) for part in parts] == [2**18] * 3 + [5]
    assert given[0].closed and given[0].file_to_stream.closed  # type: ignore[union-attr]


def test_an_asynchronous_answer_of_a_synchronous_view_is_no_answer() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"all of a home folder"

    def page(environ: dict[str, Any], start_response: Any) -> StreamingHttpResponse:
        start_response("200 OK", [])
        return StreamingHttpResponse(pieces())

    with pytest.raises(RuntimeError, match="make it a coroutine"):
        asyncio.run(ask(BufferedResponses(page), "/"))


_EXAMPLES = {
    "uuid": str(UUID(int=1)), "int": "1", "slug": "a", "str": "a", "path": "a/b", "folder_digits": "0" * 12,
    "folder_verb": "trash",
}  # fmt: skip


def addresses(resolver: URLResolver, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield an example of every address, with its view. Addresses that are regular expressions stay as they are."""
    for one in resolver.url_patterns:
        here = before + str(one.pattern)
        if isinstance(one, URLResolver):
            yield from addresses(one, here)
        else:
            yield "/" + re.sub("<(?:([a-z_]+):)?[a-z_]+>", lambda gap: _EXAMPLES[gap[1] or "str"], here), one.callback


def is_coroutine(view: Any) -> bool:
    """Whether a handler of the view waits in the event loop, whatever the view is wrapped in."""
    kind = getattr(view, "view_class", None) or getattr(view, "cls", None)
    if kind is None:
        return inspect.iscoroutinefunction(inspect.unwrap(view))
    handlers = [getattr(kind, name, None) for name in kind.http_method_names if name != "options"]
    return any(map(inspect.iscoroutinefunction, handlers))


def test_every_view_is_served_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []

    def taken(name: str) -> Any:
        async def note(*_: Any) -> None:
            used.append(name)

        return note

    for name in ("pages", "waiting", "streaming"):
        monkeypatch.setattr(asgi, name, taken(name))
    monkeypatch.setattr(asgi, "large", taken("pages"))
    sides: dict[str, set[str]] = {"pages": set(), "waiting": set(), "streaming": set()}
    for path, view in addresses(get_resolver()):
        if "^" in path or "(" in path:
            assert not is_coroutine(view), f"give {path} an address that this test can write"
            continue
        asyncio.run(ask(application, path))
        side = used.pop()
        assert (side != "pages") == is_coroutine(view), f"{path} is served by {side}"
        sides[side].add(path)
    home = f"/api/v1/sessions/{UUID(int=1)}/"
    assert {f"{home}archive/", f"{home}entries/", f"{home}languages/", "/node/v1/sync"} <= sides["waiting"]
    assert sides["streaming"] == {
        f"{home}files/",
        f"{home}files/a/b",
        "/compat/session/a/upload",
        "/compat/storage/upload",
    }
    assert serving_at(f"{home}files/a/b").largest_body > 2**30 > serving_at(home).largest_body
    assert len(sides["pages"]) > 300


def test_no_middleware_holds_a_thread_while_a_view_waits() -> None:
    kinds = {name: import_string(name) for name in settings.MIDDLEWARE}
    assert [name for name, kind in kinds.items() if not getattr(kind, "async_capable", False)] == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("path", "headers", "is_compressed"),
    [
        ("/login/", [(b"accept-encoding", b"gzip")], True),
        ("/login/", [], False),
        ("/api/v1/sessions/", [(b"accept-encoding", b"gzip")], False),
        ("/healthz", [(b"accept-encoding", b"gzip")], False),
    ],
)
def test_pages_are_compressed_and_nothing_else(
    path: str, headers: list[tuple[bytes, bytes]], is_compressed: bool
) -> None:
    start, *parts = asyncio.run(ask(application, path, *headers))
    body = b"".join(part.get("body", b"") for part in parts)
    assert (dict(start["headers"]).get(b"content-encoding") == b"gzip") == is_compressed
    assert b"<form" in (gzip.decompress(body) if is_compressed else body) or path != "/login/"


@pytest.mark.skipif(sys.platform != "linux", reason="the memory allocator of Linux")
def test_the_memory_of_large_answers_goes_back_to_the_system() -> None:
    """What is kept from between them lies above them in the heap of the thread, if they are taken from there."""
    kept: list[bytes] = []

    def used() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def read() -> None:
        for _ in range(3):
            answer = bytearray()
            for _ in range(384):
                answer += bytes(64 * 1024)
                kept.append(bytes(700))
            answer.decode()

    before = used()
    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert used() - before < 16 * 2**20


@pytest.mark.parametrize(
    ("is_large", "body", "most"), [(True, 1, 1), (False, 2**16, MOST_THREADS), (False, 2**16 + 1, 2), (True, 2**17, 1)]
)
def test_large_answers_and_large_bodies_have_their_turns(
    is_large: bool, body: int, most: int, threads: Threads
) -> None:
    making: list[int] = []
    together = threading.Semaphore(0)

    def handler(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        assert len(environ["wsgi.input"].read()) == body
        making.append(1)
        found.append(len(making))
        together.release()
        while len(found) < most:
            together.acquire(timeout=0.05)
        making.pop()
        start_response("200 OK", [])
        return [b"x"]

    async def all_at_once() -> None:
        served = BufferedResponses(handler, is_large=is_large)

        async def one() -> None:
            async with ThreadSensitiveContext(executor=threads):
                await ask(served, "/", body=bytes(body))

        await asyncio.gather(*[one() for _ in range(MOST_THREADS)])

    found: list[int] = []
    asyncio.run(all_at_once())
    assert (len(found), max(found)) == (MOST_THREADS, most)


def test_the_list_of_sessions_is_a_large_answer() -> None:
    assert serving_at("/api/v1/sessions/").is_large and not serving_at("/api/v1/me/").is_large


def test_long_addresses_are_not_kept() -> None:
    tracemalloc.start()
    for number in range(100):
        serving_at(f"/{number}{'a' * 60_000}")
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 2**20
