"""Request bodies that are larger than any request needs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from backendai.portal.http.body_limit import serve_within_limit
from backendai.portal.http.routes import Serving

MOST = 10


async def echo(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answers with the body, as the framework does it: all of it is read first."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def ask(pieces: list[bytes], *, announced: int | None = None, told: str = "cookie") -> tuple[int, bytes, int]:
    """Return status, body and how many pieces were taken from the client."""
    waiting, sent = list(pieces), []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"content-length", str(announced).encode())] if announced is not None else []
    headers += [(told.encode(), b"something")] if told else []
    serving = Serving(largest_body=MOST, largest_of_strangers=3)
    asyncio.run(serve_within_limit(echo, serving, {"type": "http", "headers": headers}, receive, send))
    return sent[0]["status"], sent[1]["body"], len(pieces) - len(waiting)


@pytest.mark.parametrize("announced", [None, MOST])
def test_it_passes_on_what_fits(announced: int | None) -> None:
    assert ask([b"01234", b"56789"], announced=announced) == (200, b"0123456789", 2)


def test_it_refuses_an_announced_size_without_reading_anything() -> None:
    status, _, taken = ask([b"0" * (MOST + 1)], announced=MOST + 1)
    assert (status, taken) == (413, 0)


@pytest.mark.parametrize("announced", [None, 1])
def test_it_stops_reading_when_more_comes_than_was_said(announced: int | None) -> None:
    status, _, taken = ask([b"012345", b"678901", b"2", b"3"], announced=announced)
    assert (status, taken) == (413, 2)


@pytest.mark.parametrize(("told", "status"), [("", 413), ("accept", 413), ("authorization", 200), ("cookie", 200)])
def test_strangers_may_send_less(told: str, status: int) -> None:
    assert ask([b"012", b"3"], told=told)[0] == status
    assert ask([b"012"], told=told)[0] == 200
