"""Pages under the ASGI server: threads live on, and what a request borrowed goes back at its end."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.signals import request_finished, request_started

from backendai.asgi import application
from backendai.ops.kept_objects import set_aside_what_stays


async def get(path: str, *headers: tuple[bytes, bytes]) -> tuple[int, bytes]:
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

    await application(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


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


def test_it_serves_one_request_after_the_other_on_the_same_thread() -> None:
    threads: list[int] = []

    def note(**kwargs: Any) -> None:
        threads.append(threading.get_ident())

    async def two() -> None:
        await get("/healthz")
        await get("/healthz")

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
    assert set(looked) == {0}


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
