"""Apps for programs: an access token opens them, without a cookie and without a page."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import aiohttp
import pytest
from asgiref.sync import sync_to_async

from backendai.domain.accounts.models import AccessToken, User
from backendai.domain.accounts.services import create_token, revoke_token
from backendai.domain.activity.models import AuditEntry
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.gates.appproxy import handler
from backendai.gates.gateways import guard
from tests.appproxy.stage import Stage, lead_to, stage
from tests.appproxy.test_public_apps import open_it
from tests.patience import patient

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]
HTML = {"Accept": "text/html"}


async def token_of(user: User, *scopes: str) -> tuple[AccessToken, dict[str, str]]:
    """Return a new token, and the header with it."""
    token, text = await sync_to_async(create_token)(user, "script", scopes=scopes or ("read", "sessions"))
    return token, {"Authorization": f"Bearer {text}"}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "RECHECK_SECONDS", 0.05)
    monkeypatch.setattr(guard, "LOOK_SECONDS", 0.05)


async def test_a_token_opens_the_app_without_a_cookie_and_stays_with_the_proxy() -> None:
    async with stage() as here:
        _, sent = await token_of(here.cast.alice)
        for kind in ("Bearer", "bearer", "token"):
            header = {"Authorization": f"{kind} {sent['Authorization'].split()[1]}"}
            answer = await here.ask("GET", "/page?a=%2F", headers=header)
            assert (answer.status, await answer.text()) == (200, "GET /page?a=%2F")
        assert "Set-Cookie" not in answer.headers
        assert all("Authorization" not in request.headers for request in here.app.requests)
        entry = await AuditEntry.objects.aget(action="app.open")
        assert (entry.details["service"], entry.details["token"]) == ("notes", "script")


@pytest.mark.parametrize("text", ["bai_wrong", "bai_\xe9", "bai_", f"bai_{'a' * 300}"])
async def test_a_wrong_token_is_refused_whatever_cookie_comes_with_it(text: str) -> None:
    async with stage() as here:
        cookie = await here.enter()
        answer = await here.ask("GET", "/", cookie=cookie, headers=HTML | {"Authorization": f"Bearer {text}"})
        assert (answer.status, (await answer.json())["code"]) == (401, "token-refused")
        assert here.app.requests == []


async def test_a_token_of_another_person_or_without_the_scope_opens_nothing() -> None:
    async with stage() as here:
        cookie = await here.enter()
        for user, scopes, code in (
            (here.cast.bob, ("read", "sessions"), "app-not-found"),
            (here.cast.alice, ("read", "folders"), "token-scope"),
        ):
            _, sent = await token_of(user, *scopes)
            answer = await here.ask("GET", "/", cookie=cookie, headers=sent)
            assert (answer.status, (await answer.json())["code"]) == (403, code)
        _, sent = await token_of(here.cast.alice)
        for label in ("other", "ring"):  # no app of this name, and one that does not speak HTTP
            host = {"Host": here.netloc.replace("notes-", f"{label}-")}
            assert (await here.ask("GET", "/", headers=sent | host)).status in (403, 409)
        assert here.app.requests == []


async def test_a_public_app_is_no_way_around_a_wrong_token() -> None:
    async with stage() as here:
        await sync_to_async(open_it)(here)
        answer = await here.ask("GET", "/", headers={"Authorization": "Bearer bai_wrong"})
        assert answer.status == 401


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("way", ["revoked", "given away", "ended"])
async def test_what_ends_the_access_cuts_websockets_and_later_requests(way: str) -> None:
    async with stage() as here:
        token, sent = await token_of(here.cast.alice)
        websocket = await here.websocket("", **sent, Cookie="", Origin=here.origin)
        assert await websocket.receive_str() == "welcome"
        if way == "revoked":
            await sync_to_async(revoke_token)(here.cast.alice, token.pk)
        elif way == "given away":
            await ComputeSession.objects.aupdate(owner=here.cast.bob)
        else:
            await sync_to_async(terminate_session)(here.session, here.cast.alice)
        async with asyncio.timeout(patient(10)):
            assert (await websocket.receive()).type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
        assert (await here.ask("GET", "/", headers=sent)).status in (401, 403, 409, 410)


async def test_a_websocket_may_bring_its_token_in_the_address_and_the_app_does_not_see_it() -> None:
    async with stage() as here:
        _, sent = await token_of(here.cast.alice)
        text = sent["Authorization"].split()[1]
        url = f"http://127.0.0.1:{here.port}/ws?a=1&token={text}&b=2"
        websocket = await here.client.ws_connect(url, headers={"Host": here.netloc})
        assert await websocket.receive_str() == "welcome"
        assert here.app.requests[0].raw_path == "/ws?a=1&b=2"
        assert (await here.ask("GET", f"/?token={text}")).status == 401, "only websockets cannot send a header"


async def test_no_app_sees_a_token_in_an_address() -> None:
    async with stage() as here:
        cookie, (_, sent) = await here.enter(), await token_of(here.cast.alice)
        text = sent["Authorization"].split()[1]
        for given, seen in (
            (f"/page?token={text}", "/page"),
            (f"/?a=1&token={text}&token=bai_{'x' * 200}&b=2", "/?a=1&b=2"),
            ("/?token=own&a=?", "/?token=own&a=?"),
        ):
            for headers in (sent, {"Cookie": cookie}):
                answer = await here.ask("GET", given, headers=headers | {"Referer": f"{here.origin}{given}"})
                assert await answer.text() == f"GET {seen}"
                assert here.app.requests[-1].headers["Referer"] == f"{here.origin}{seen}"
        await sync_to_async(open_it)(here)
        assert await (await here.ask("GET", f"/page?token={text}")).text() == "GET /page"


async def test_a_page_of_another_origin_cannot_use_a_token_that_it_knows() -> None:
    async with stage() as here:
        _, sent = await token_of(here.cast.alice)
        answer = await here.ask("POST", "/", headers=sent | {"Origin": "https://evil.example"})
        assert answer.status == 403


async def test_the_check_of_jupyter_for_foreign_pages_is_answered_for_tokens_and_not_for_browsers() -> None:
    async with stage() as here:
        _, sent = await token_of(here.cast.alice)
        own = {"Cookie": "mine=1; _xsrf=old", "X-XSRFToken": "other"}
        await here.ask("POST", "/api/kernels", headers=sent | own)
        got = here.app.requests[0].headers
        assert got["Cookie"] == f"mine=1; _xsrf={got['X-XSRFToken']}" and got.getall("X-XSRFToken") != ["other"]
        await here.ask("POST", "/api/kernels", cookie=await here.enter())
        assert {"X-XSRFToken", "Cookie"} & set(here.app.requests[1].headers) == set()


class _Late:
    """A server that listens once the service is launched."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = int(listener.getsockname()[1])
        self.server: HTTPServer | None = None

    def start(self, command: Sequence[str]) -> None:
        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", self.port), Answer)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


async def late_app(here: Stage) -> _Late:
    late = _Late()
    await sync_to_async(lead_to)(here.session, late.port)
    here.services.define("notes", command=["notes"])
    return late


async def test_a_program_waits_for_the_start_and_its_body_arrives_whole() -> None:
    async with stage() as here:
        late = await late_app(here)
        here.services.on_launch = late.start
        _, sent = await token_of(here.cast.alice)
        answer = await here.ask("POST", "/", headers=sent | HTML, data=b"x" * 2**20)
        assert (answer.status, await answer.read()) == (200, b"x" * 2**20)
        assert len(here.services.launched) == 1
        ready = await here.ask("POST", "/.backendai/open", headers=sent)
        assert await ready.json() == {"state": "ready"}
        assert late.server is not None
        late.server.shutdown()
        late.server.server_close()


async def test_a_start_that_takes_too_long_or_fails_is_told_in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "START_SECONDS", 0)
    async with stage() as here:
        await late_app(here)
        _, sent = await token_of(here.cast.alice)
        answer = await here.ask("GET", "/", headers=sent | HTML)
        said: dict[str, str] = json.loads(await answer.text())
        assert (answer.status, answer.headers["Retry-After"], said["code"]) == (503, "5", "app-starting")
        here.services.codes["launch-1"], here.services.words = 2, b"no such file"
        answer = await here.ask("GET", "/", headers=sent | HTML)
        assert (answer.status, await answer.json()) == (
            502,
            {"code": "app-failed", "detail": "notes ended with exit code 2.", "log": "no such file"},
        )
        assert len(here.services.launched) == 1
        await here.ask("POST", "/.backendai/open", headers=sent)
        assert len(here.services.launched) == 2, "a person's button, for programs"
        monkeypatch.setattr(handler, "MOST_WAITING", 0)
        assert (await here.ask("GET", "/", headers=sent)).status == 429
