"""Guest agents that keep silent, answer without end or answer nonsense: their owners are the masters of them."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.test import Client

from backendai import asgi
from backendai.asgi import Threads
from backendai.base.core.errors import BadAnswer, NotFound
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.records.traffic import meter
from backendai.gates.gateways import guests, open_questions
from backendai.gates.gateways.guest_answers import DEEPEST_ANSWER, MOST_VALUES, answer_in
from tests.api.callers import Caller
from tests.cast import Cast
from tests.effort import some
from tests.factories import make_running_session
from tests.ops.test_patient_http import served
from tests.patience import patient
from tests.realtime.sockets import script

MOST_THREADS = 3


class HostileGuest:
    """A gateway whose guest answers with these pieces; an Event among them is waited for."""

    def __init__(self) -> None:
        self.pieces: list[bytes | asyncio.Event] = []
        self.asked = 0
        self.begins = asyncio.Event()
        self.begins.set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        await request.content.readany()
        self.asked += 1
        await self.begins.wait()
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in self.pieces:
            if isinstance(piece, asyncio.Event):
                await piece.wait()
            else:
                await response.write(piece)
        return response


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Threads]:
    threads = Threads(MOST_THREADS)
    monkeypatch.setattr(asgi, "threads", threads)
    monkeypatch.setattr(meter, "touch", lambda session_id: None)
    yield threads
    threads.shutdown()


@asynccontextmanager
async def guest_of(session: ComputeSession) -> AsyncIterator[HostileGuest]:
    guest = HostileGuest()
    app = web.Application()
    app.router.add_post("/kernels/{kernel}/execute", guest.answer)
    async with TestServer(app) as server:
        await Agent.objects.aupdate(gateway_url=str(server.make_url("")).rstrip("/"))
        yield guest


class Visitor:
    """The owner's script, which asks through the application that the web server runs."""

    def __init__(self, session: ComputeSession, bearer: tuple[bytes, bytes]) -> None:
        self.session, self.bearer = session, bearer

    async def open(self, path: str, method: str = "GET", body: Any = None) -> ApplicationCommunicator:
        full, _, query = f"/api/v1/sessions/{self.session.pk}/{path}".partition("?")
        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), self.bearer]
        scope = {
            "type": "http", "method": method, "path": full, "raw_path": full.encode(), "query_string": query.encode(),
            "headers": headers, "http_version": "1.1", "scheme": "http", "client": ("127.0.0.1", 1),
            "server": ("testserver", 80),
        }  # fmt: skip
        opened = ApplicationCommunicator(asgi.application, scope)
        content = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
        await opened.send_input({"type": "http.request", "body": content, "more_body": False})
        return opened

    async def ask(self, *asked: Any) -> tuple[int, Any]:
        return await answer_of(await self.open(*asked))


async def answer_of(opened: ApplicationCommunicator) -> tuple[int, Any]:
    start = await opened.receive_output(patient(20))
    parts = [await opened.receive_output(patient(20))]
    while parts[-1].get("more_body"):
        parts.append(await opened.receive_output(patient(20)))
    return start["status"], json.loads(b"".join(part.get("body", b"") for part in parts))


async def visitor_of(cast: Cast) -> Visitor:
    session = await sync_to_async(make_running_session)(cast.alice)
    return Visitor(session, (await sync_to_async(script)(cast.alice))[-1])


@pytest.mark.django_db(transaction=True)
@pytest.mark.asyncio
async def test_an_archive_leaves_as_it_comes(cast: Cast, threads: Threads) -> None:
    visitor = await visitor_of(cast)
    async with guest_of(visitor.session) as guest:
        rest = asyncio.Event()
        guest.pieces = [b"{}\n", b"\0\0\0\5first", rest, b"\0\0\0\4last\0\0\0\0"]
        opened = await visitor.open("archive/?path=data")
        assert (await opened.receive_output(patient(20)))["status"] == 200
        assert (await opened.receive_output(patient(20)))["body"] == b"first"
        rest.set()
        assert (await opened.receive_output(patient(20)))["body"] == b"last"
        await opened.wait(patient(20))


@pytest.mark.django_db(transaction=True)
@pytest.mark.asyncio
async def test_questions_without_an_answer_hold_no_thread_and_are_limited(
    cast: Cast, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_questions, "MOST_OF_SESSION", 2 * MOST_THREADS)
    visitor = await visitor_of(cast)
    async with guest_of(visitor.session) as guest:
        says = asyncio.Event()
        guest.pieces = [says, b'{"entries": [], "next": null, "total": 0}']
        before = threading.active_count()
        opened = [await visitor.open("entries/") for _ in range(2 * MOST_THREADS)]
        while guest.asked < len(opened):
            await asyncio.sleep(0.01)
        assert threading.active_count() <= before + MOST_THREADS
        status, refusal = await visitor.ask("search/?q=a")
        assert (status, refusal["code"], refusal["data"]) == (429, "too-many-questions", {"most": len(opened)})
        assert "6 requests to this session are open" in refusal["detail"]
        says.set()
        assert [(await answer_of(one))[0] for one in opened] == [200] * len(opened)
        assert (await visitor.ask("search/?q=a"))[0] == 200
    assert not open_questions._open


@pytest.mark.django_db(transaction=True)
@pytest.mark.asyncio
async def test_few_large_answers_are_read_at_a_time_and_none_is_kept(cast: Cast, threads: Threads) -> None:
    visitor = await visitor_of(cast)
    large = b'{"languages": "' + b"a" * open_questions.LARGE
    async with guest_of(visitor.session) as guest:
        says = asyncio.Event()
        guest.pieces = [large, says, b'"}']
        opened = [await visitor.open("languages/") for _ in range(2)]
        while open_questions._open["large"] < 2:
            await asyncio.sleep(0.01)
        status, refusal = await visitor.ask("languages/")
        assert (status, refusal["code"], refusal["data"]) == (429, "too-many-questions", {"most": 2})
        says.set()
        assert [(await answer_of(one))[0] for one in opened] == [502, 502]
    assert not open_questions._open
    answer = bytearray(large)
    with pytest.raises(BadAnswer) as refused:
        answer_in(answer, "languages")
    assert refused.value.__context__ is None


LONG_ANSWERS: list[tuple[Any, ...]] = [("archive/",), ("files/",), ("files/a",), ("files/a", "PUT", b"a")]


NO_FAULTS = ("hints not sent", "Task was destroyed")  # without a broker, and with a visitor who does not hang up


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log's warnings, which have to be one line each."""
    found = [record for record in caplog.records if record.levelno >= logging.WARNING]
    found = [record for record in found if not record.getMessage().startswith(NO_FAULTS)]
    assert not [record for record in found if record.exc_info or "\n" in record.getMessage()]
    assert {record.levelno for record in found} == {logging.WARNING}
    return [record.getMessage() for record in found]


@pytest.mark.django_db(transaction=True)
@pytest.mark.asyncio
@some("pieces", [None, [], [b'{"type": "fi']], ids=["of the gateway", "at all", "whole"])
@pytest.mark.parametrize("asked", [*LONG_ANSWERS, ("files/a", "PUT", bytes(2**24))], ids=lambda one: one[0])
async def test_a_long_answer_without_its_first_line_is_given_up(
    cast: Cast,
    threads: Threads,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    asked: tuple[Any, ...],
    pieces: list[bytes] | None,
) -> None:
    visitor = await visitor_of(cast)
    monkeypatch.setattr(guests, "_ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(guests, "SILENCE_SECONDS", 0.2)
    async with guest_of(visitor.session) as guest:
        says = asyncio.Event()
        guest.pieces = [*(pieces or []), says]
        if pieces is None:
            guest.begins.clear()
        status, refusal = await visitor.ask(*asked)
        assert (status, refusal["code"]) == (503, "node-unreachable")
        says.set()
        guest.begins.set()
    assert not open_questions._open
    assert ["NodeUnreachable" in line and "no answer" in line for line in lines_of(caplog)] == [True]


BROKEN: dict[str, tuple[str, list[bytes | None], bytes]] = {  # None: it says no more
    "a silent archive": ("archive/", [b"{}\n\0\0\0\5first", None], b"first"),
    "a cut archive": ("archive/", [b"{}\n\0\0\0\5first\0\0\0\5x"], b"first"),
    "a chunk of an archive that is too large": ("archive/", [b"{}\n\0\0\0\5first\xff\xff\xff\xff"], b"first"),
    "a silent file": ("files/a", [b'{"type": "file", "name": "a", "size": 9}\nfirst', None], b"first"),
    "a cut file": ("files/a", [b'{"type": "file", "name": "a", "size": 9}\nfirst'], b"first"),
    "a file that is longer": ("files/a", [b'{"type": "file", "name": "a", "size": 9}\n', b"first and more"], b""),
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.asyncio
@some("name", BROKEN, 2)
async def test_an_answer_that_breaks_off_breaks_the_connection_and_is_one_line_of_the_log(
    cast: Cast, threads: Threads, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    monkeypatch.setattr(guests, "SILENCE_SECONDS", 0.2)
    visitor = await visitor_of(cast)
    path, pieces, comes = BROKEN[name]
    async with guest_of(visitor.session) as guest, served(asgi.application) as (reader, writer):
        says = asyncio.Event()
        guest.pieces = [piece or says for piece in pieces]
        head = f"GET /api/v1/sessions/{visitor.session.pk}/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode()
        writer.write(head + b": ".join(visitor.bearer) + b"\r\n\r\n")
        came = await asyncio.wait_for(reader.read(), patient(20))
        says.set()
    assert came.startswith(b"HTTP/1.1 200") and comes in came and not came.endswith(b"\r\n0\r\n\r\n"), came
    assert ["an answer broke off" in line for line in lines_of(caplog)] == [True]
    assert not open_questions._open


WRONG: dict[str, tuple[str, Any, bytes]] = {
    "no JSON": ("languages/", None, b"<html>"),
    "a list": ("languages/", None, b"[]"),
    "another form": ("languages/", None, b'{"languages": "all"}'),
    "without it": ("contexts/", None, b"{}"),
    "deep": ("languages/", None, b'{"languages": [], "x": %s}' % (b"[" * 900 + b"]" * 900)),
    "deeper than JSON is read": ("languages/", None, b'{"languages": [], "x": %s}' % (b"[" * 10**5 + b"]" * 10**5)),
    "no number": ("runs/r/", None, b'{"run_id": "r", "state": "RUNNING", "offset": NaN}'),
    "too large a number": ("runs/r/", None, b'{"run_id": "r", "state": "RUNNING", "created_at": 1e400}'),
    "a number of digits": ("runs/r/", None, b'{"run_id": "r", "state": "RUNNING", "x": %s}' % (b"1" * 10**4)),
    "a state that is a list": ("runs/", {"code": "1"}, b'{"run_id": "r", "state": []}'),
    "items that are none": ("execute/", {"code": "1"}, b'{"run_id": "r", "state": "FINISHED", "items": [5]}'),
    "a type that is a list": (
        "execute/", {"code": "1"}, b'{"run_id": "r", "state": "RUNNING", "items": [{"type": "media", "mime": []}]}',
    ),
    "an offset that is none": ("execute/", {"code": "1"}, b'{"run_id": "r", "state": "RUNNING", "offset": "x"}'),
    "a step that is none": ("execute/", {"code": "1"}, b'{"run_id": "r", "state": "RUNNING", "ended_step": "x"}'),
    "matches that are none": ("execute/", {"mode": "complete", "code": "p"}, b'{"matches": 5}'),
    "a header with an end of line": ("files/a", None, b'{"type": "file", "name": "a", "size": 1, "etag": "a\\nb"}\n'),
    "a size below nothing": ("files/a", None, b'{"type": "file", "name": "a", "size": -1}\n'),
    "a size without end": ("files/a", None, b'{"type": "file", "name": "a", "size": 1%s}\n' % (b"0" * 40)),
    "a file without its size": ("files/a", None, b'{"type": "file", "name": "a"}\n'),
    "a name that is none": ("files/a", None, b'{"type": "file", "name": {}, "size": 1}\n'),
    "very many values": ("languages/", None, b'{"languages": [], "x": [%s1]}' % (b"1," * MOST_VALUES)),
    "very many texts": ("languages/", None, b'{"languages": [], "x": [%s""]}' % (b'"",' * MOST_VALUES)),
    "very many levels": ("languages/", None, b'{"languages": [%s{}]}' % (b"{}," * MOST_VALUES)),
    "an error without its form": ("languages/", None, b'{"error": 5}'),
    "an error of lists": ("languages/", None, b'{"error": {"code": [], "message": []}}'),
}  # fmt: skip


@pytest.mark.django_db(transaction=True)
@pytest.mark.asyncio
async def test_a_wrong_answer_is_told_as_one(cast: Cast, threads: Threads, caplog: pytest.LogCaptureFixture) -> None:
    visitor, answers = await visitor_of(cast), {}
    async with guest_of(visitor.session) as guest:
        for name, (path, body, said) in WRONG.items():
            guest.pieces = [said]
            answers[name] = await visitor.ask(path, "POST" if body else "GET", body)
    assert {name: (status, told["code"]) for name, (status, told) in answers.items()} == dict.fromkeys(
        WRONG, (502, "wrong-answer")
    )
    assert len(lines_of(caplog)) == len(WRONG)
    assert "nested too deeply" in answers["deep"][1]["detail"]
    assert "state: Input should be a valid string" in answers["a state that is a list"][1]["detail"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.asyncio
async def test_halves_of_characters_are_replaced(cast: Cast, threads: Threads) -> None:
    visitor = await visitor_of(cast)
    async with guest_of(visitor.session) as guest:
        guest.pieces = [
            b'{"run_id": "r", "state": "RUNNING", "items": [{"type": "stdout", "text": "\\ud83d \\ud83d\\ude00"}]}'
        ]
        status, told = await visitor.ask("runs/r/")
        assert (status, told["items"][0]["text"]) == (200, "? \N{GRINNING FACE}")
        guest.pieces = [b'{"type": "file", "name": "a\\r\\nX: y\\ud800", "size": 1}\nz']
        opened = await visitor.open("files/a")
        start = await opened.receive_output(patient(20))
        assert dict(start["headers"])[b"Content-Disposition"] == b"attachment; filename*=UTF-8''a%0D%0AX%3A%20y%3F"
        await opened.wait(patient(20))


def test_an_answer_is_as_deep_as_one_may_be() -> None:
    def deep(levels: int) -> bytes:
        return b'{"x": %s}' % (b"[" * (levels - 1) + b"]" * (levels - 1))

    assert answer_in(deep(DEEPEST_ANSWER), "code")
    with pytest.raises(BadAnswer):
        answer_in(deep(DEEPEST_ANSWER + 1), "code")
    with pytest.raises(NotFound):
        answer_in(b'{"error": {"code": "no-such-run", "message": "There is none."}}', "code")


@pytest.mark.parametrize("text", ["a,[{" * MOST_VALUES, '",\\' * MOST_VALUES, "\\" * MOST_VALUES])
def test_only_values_are_counted_and_not_what_texts_contain(text: str) -> None:
    line = json.dumps({"matches": [text, "b"], "c": text}).encode()
    assert answer_in(line, "complete")["matches"] == [text, "b"]
    many = json.dumps({"matches": [text], "c": [text[:9], 1] * MOST_VALUES}).encode()
    with pytest.raises(BadAnswer, match="more than 250,000 values"):
        answer_in(many, "complete")
    with pytest.raises(BadAnswer, match="Input should be a valid string"):
        answer_in(json.dumps({"matches": [1] * (MOST_VALUES - 9)}).encode(), "complete")


@pytest.mark.django_db
@pytest.mark.parametrize("limit", ["MOST_THREADS", "MOST_THREADS_OF_KERNEL"])
def test_few_pages_wait_for_an_agent(cast: Cast, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    session = make_running_session(cast.alice)
    kernel = session.kernels.get()
    Agent.objects.update(gateway_url="http://127.0.0.1:1")
    monkeypatch.setattr(open_questions, limit, 1)
    path, alice = f"/api/v1/sessions/{session.pk}/logs/", Caller(cast.alice)
    key = f"http://127.0.0.1:1/kernels/{kernel.pk}" if limit == "MOST_THREADS_OF_KERNEL" else "another"
    with open_questions.waiting_thread(key):
        refused = alice.get(path)
        assert (refused.status_code, refused.json()["code"]) == (429, "too-many-questions")
        page = Client()
        page.force_login(cast.alice)
        assert page.get(f"/sessions/{session.pk}/commit/").status_code == 200, "it goes on without the look"
    assert alice.get(path).status_code == 503, "the agent that is away"
